//! The table of the settings of sm, and how the configuration takes them over.

use std::time::Duration;

use crate::config::Config;

towline_settings::settings! {
    /// The settings of a job's sm rails. The program and the environment can change them.
    pub struct Settings, "sm." {
        directory, "TOWLINE_SM_DIRECTORY": String = "/dev/shm", "",
            "File system in memory that holds the segments of sm";
        eager_ring_bytes, "TOWLINE_SM_EAGER_RING_BYTES": u32 = 65_536u32, "B",
            "Ring of sm for eager frames, for each peer that is sent to: a power of two; shorter where shared memory is short";
        eager_limit_bytes, "TOWLINE_SM_EAGER_LIMIT_BYTES": u32 = 8_248u32, "B",
            "Longest eager frame of sm, with its header";
        bulk_ring_bytes, "TOWLINE_SM_BULK_RING_BYTES": u32 = 0u32, "B",
            "Ring of sm for fragments of long messages, for each peer that is sent to: a power of two; 0 for 256 KiB, and for up to 4 MiB where there are more ranks than processors, so that there are fewer context switches; shorter where shared memory is short";
        bulk_limit_bytes, "TOWLINE_SM_BULK_LIMIT_BYTES": u32 = 16_376u32, "B",
            "Longest fragment of a long message, with its header";
        single_copy_bytes, "TOWLINE_SM_SINGLE_COPY_BYTES": u32 = 8_192u32, "B",
            "The receiver reads messages of at least this length from the sender's memory through the kernel, in a single copy, where that works; 0 for none";
        single_copy_limit_bytes, "TOWLINE_SM_SINGLE_COPY_LIMIT_BYTES": u32 = 1_048_576u32, "B",
            "Messages longer than this are copied through a ring, as the receiver makes no other progress during a single copy";
        windows, "TOWLINE_SM_WINDOWS": bool = true, "",
            "Whether ranks that sm connects access each other's windows themselves; otherwise the target does that when it makes progress";
        liveness_ms, "TOWLINE_SM_LIVENESS_MS": u32 = 250u32, "ms",
            "Time between two checks of sm for dead peers";
    }
}

impl Config {
    /// Takes over the settings of a job. A bulk ring of 0 bytes leaves the ring as it is.
    ///
    /// ```
    /// use towline_sm::{Config, Settings};
    ///
    /// let mut settings = Settings::default();
    /// settings.eager_limit_bytes = 4096;
    /// let mut config = Config::new(0x1234, 3, 64);
    /// config.apply(&settings);
    /// assert_eq!((config.eager_limit_bytes, config.bulk_ring_bytes), (4096, 256 << 10));
    /// ```
    pub fn apply(&mut self, settings: &Settings) {
        self.directory = settings.directory.as_str().into();
        self.eager_ring_bytes = settings.eager_ring_bytes;
        self.eager_limit_bytes = settings.eager_limit_bytes;
        if settings.bulk_ring_bytes != 0 {
            self.bulk_ring_bytes = settings.bulk_ring_bytes;
        }
        self.bulk_limit_bytes = settings.bulk_limit_bytes;
        self.single_copy_bytes = settings.single_copy_bytes;
        self.single_copy_limit_bytes = settings.single_copy_limit_bytes;
        self.share_windows = settings.windows;
        self.liveness_interval = Duration::from_millis(settings.liveness_ms.into());
    }
}
