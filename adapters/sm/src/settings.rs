//! The table of the settings of sm, and how the configuration takes them over.

use std::time::Duration;

use towline_core::rail::HEAD;
use towline_settings::{InvalidSetting, Values};

use crate::config::{Config, longest_frame};
use crate::ring::{MAX_LEN, MAX_SLOTS, SLOT};

/// Bytes of a frame of either kind.
const FRAME: Values = Values::range(HEAD as u32, MAX_LEN);
/// Bytes of the longest ring.
const MAX_RING: u32 = MAX_SLOTS * SLOT as u32;
/// A directory. Whether it exists is known where a rail is opened.
const DIRECTORY: Values =
    Values::Checked("the path of a directory in memory, the same for all ranks of a host", |text| {
        if text.starts_with('/') { Ok(()) } else { Err("does not begin with `/`".into()) }
    });

towline_settings::settings! {
    /// The settings of a job's sm rails. The program and the environment can change them.
    pub struct Settings, "sm." {
        directory, "TOWLINE_SM_DIRECTORY": String = "/dev/shm", "" in DIRECTORY,
            "File system in memory that holds the segments of sm";
        eager_ring_bytes, "TOWLINE_SM_EAGER_RING_BYTES": u32 = 65_536u32, "B" in Values::power_of_two(2048, MAX_RING),
            "Ring of sm for eager frames, for each peer that is sent to: a power of two; shorter where shared memory is short";
        eager_limit_bytes, "TOWLINE_SM_EAGER_LIMIT_BYTES": u32 = 8_248u32, "B" in FRAME,
            "Longest eager frame of sm, with its header";
        bulk_ring_bytes, "TOWLINE_SM_BULK_RING_BYTES": u32 = 0u32, "B" in Values::power_of_two(512, MAX_RING).or_zero(),
            "Ring of sm for fragments of long messages, for each peer that is sent to: a power of two; 0 for 256 KiB, and for up to 4 MiB where there are more ranks than processors, so that there are fewer context switches; shorter where shared memory is short";
        bulk_limit_bytes, "TOWLINE_SM_BULK_LIMIT_BYTES": u32 = 16_376u32, "B" in FRAME,
            "Longest fragment of a long message, with its header";
        single_copy_bytes, "TOWLINE_SM_SINGLE_COPY_BYTES": u32 = 0u32, "B",
            "The receiver reads messages of at least this length from the sender's memory through the kernel, in a single copy, where that works; 0 for none";
        single_copy_limit_bytes, "TOWLINE_SM_SINGLE_COPY_LIMIT_BYTES": u32 = 1_048_576u32, "B" in Values::range(0, 1 << 30),
            "Messages longer than this are copied through a ring, as the receiver makes no other progress during a single copy";
        windows, "TOWLINE_SM_WINDOWS": bool = true, "",
            "Whether ranks that sm connects access each other's windows themselves; otherwise the target does that when it makes progress";
        liveness_ms, "TOWLINE_SM_LIVENESS_MS": u32 = 250u32, "ms" in Values::at_least(1),
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

impl Settings {
    /// Checks the settings that restrict each other.
    ///
    /// # Errors
    /// The first setting that cannot be kept beside the others. Of two settings, the one that differs from its default is named.
    ///
    /// ```
    /// let mut settings = towline_sm::Settings::default();
    /// settings.eager_ring_bytes = 16_384;
    /// let why = settings.check().unwrap_err().to_string();
    /// assert!(why.starts_with("TOWLINE_SM_EAGER_RING_BYTES: `16384` is too short"), "{why}");
    /// ```
    pub fn check(&self) -> Result<(), InvalidSetting> {
        let (default, mut config) = (Self::default(), Config::new(0, 0, 1));
        config.apply(self);
        let eager = ["TOWLINE_SM_EAGER_RING_BYTES", "TOWLINE_SM_EAGER_LIMIT_BYTES"];
        let bulk = ["TOWLINE_SM_BULK_RING_BYTES", "TOWLINE_SM_BULK_LIMIT_BYTES"];
        let eager_given = self.eager_limit_bytes != default.eager_limit_bytes;
        let bulk_given = self.bulk_limit_bytes != default.bulk_limit_bytes || self.bulk_ring_bytes == 0;
        for ([ring, limit], ring_bytes, limit_bytes, limit_given, reserves) in [
            (eager, config.eager_ring_bytes, config.eager_limit_bytes, eager_given, true),
            (bulk, config.bulk_ring_bytes, config.bulk_limit_bytes, bulk_given, false),
        ] {
            let longest = longest_frame(ring_bytes, reserves);
            if limit_bytes <= longest {
                continue;
            }
            if limit_given {
                let why = format!("is too long for {ring}, {ring_bytes}");
                let possible = format!("{HEAD} to {longest} B, or more with a longer ring");
                return Err(InvalidSetting::new(limit, limit_bytes, why, possible));
            }
            let enough = (9..32).map(|bits| 1 << bits).find(|ring| longest_frame(*ring, reserves) >= limit_bytes);
            let why = format!("is too short for {limit}, {limit_bytes}");
            let possible = format!("{} B and longer, or shorter with a lower limit", enough.unwrap_or(MAX_RING));
            return Err(InvalidSetting::new(ring, ring_bytes, why, possible));
        }
        let (least, most) = (self.single_copy_bytes, self.single_copy_limit_bytes);
        if least != 0 && least > most {
            let (first, last) = ("TOWLINE_SM_SINGLE_COPY_BYTES", "TOWLINE_SM_SINGLE_COPY_LIMIT_BYTES");
            let none = "so no message would be read in a single copy";
            let possible = format!("0 for no single copy, 1 to {most} B, or more with a higher limit");
            return Err(InvalidSetting::new(first, least, format!("is above {last}, {most}, {none}"), possible));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limits in error texts are those that rails enforce.
    #[test]
    fn a_rail_accepts_exactly_the_settings_that_pass_the_check() {
        for ring in (9..=16).map(|bits| 1u32 << bits) {
            for eager in [true, false] {
                let accepts = |limit: u32| {
                    let mut settings = Settings::default();
                    let (ring_of, limit_of) = if eager {
                        (&mut settings.eager_ring_bytes, &mut settings.eager_limit_bytes)
                    } else {
                        (&mut settings.bulk_ring_bytes, &mut settings.bulk_limit_bytes)
                    };
                    (*ring_of, *limit_of) = (ring, limit);
                    let mut config = Config::new(1, 0, 2);
                    config.apply(&settings);
                    assert_eq!(config.check().is_ok(), settings.check().is_ok(), "{ring} {limit} {eager}");
                    config.check().is_ok()
                };
                let longest = longest_frame(ring, eager);
                assert!(!accepts(longest.max(HEAD as u32 - 1) + 1), "{ring}: {longest}");
                assert_eq!(accepts(longest.max(HEAD as u32)), longest >= HEAD as u32, "{ring}: {longest}");
            }
        }
        assert!(longest_frame(2048, true) >= HEAD as u32 && longest_frame(1024, true) < HEAD as u32);
        assert!(longest_frame(512, false) >= HEAD as u32);
    }

    #[test]
    fn single_copy_is_switched_off_only_by_zero() {
        let of =
            |least, most| Settings { single_copy_bytes: least, single_copy_limit_bytes: most, ..Settings::default() };
        assert_eq!([of(0, 0).check(), of(5000, 5000).check(), of(1, 1 << 30).check()], [Ok(()), Ok(()), Ok(())]);
        let why = of(2_000_000, 1 << 20).check().unwrap_err();
        assert_eq!(why.variable, "TOWLINE_SM_SINGLE_COPY_BYTES");
        assert_eq!(of(0, 1).check(), Ok(()));
    }
}
