//! The settings of a rail, and the cost of each.

use std::path::PathBuf;
use std::time::Duration;

use towline_core::rail::HEAD;

use crate::clean_up::CleanUp;
use crate::error::OpenError;
use crate::ring::{MAX_LEN, MAX_SLOTS, PREFIX, SLOT, slots_for};
use crate::segment::layout::PAGE;
use crate::segment::room::{Room, file_limit};

/// Bytes of the smallest ring that [`Config::fit`] chooses.
const LEAST_RING: u32 = 4096;
/// Bytes down to which the ring for long messages shrinks before the ring for short frames does.
const SHORT_BULK_RING: u32 = 64 << 10;

/// Settings of a [`Rail`](crate::Rail). All ranks of a job share one job id; ring sizes may differ between ranks, since
/// each sender makes the rings it writes to.
///
/// ```
/// let mut config = towline_sm::Config::new(0x1234, 3, 64); // job, this rank, ranks of the job
/// config.bulk_ring_bytes = 128 << 10;
/// assert_eq!(config.bytes_per_peer(), (64 << 10) + 4096 + (128 << 10) + 4096);
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the segments: in a file system in memory, the same for all ranks. Default `/dev/shm`.
    pub directory: PathBuf,
    /// The job's id. Segments of other jobs are never touched, except to remove those whose processes are gone.
    pub job: u64,
    /// This rail's own number among all rails of the job, below `ranks`. Two contexts of one process take two numbers.
    pub rank: u32,
    /// How many rails the job has: the doorbell has two bits for each. At most 2^20 (1,048,576).
    pub ranks: u32,
    /// Who removes the files of this rail if its process ends without doing so. Default: the next rail that a process of the same
    /// user opens on this host.
    pub clean_up: Option<CleanUp>,
    /// Whether a progress thread uses this rail while the user computes. The rail only states this in its attributes, so that the
    /// engine above protects the data that it shares with that thread. Default `false`.
    pub progress_thread: bool,
    /// Bytes of the ring for short frames to one peer, a power of two. Default 64 KiB.
    pub eager_ring_bytes: u32,
    /// Bytes of the longest short frame, header included. Default 8184 B, which is 128 slots.
    pub eager_limit_bytes: u32,
    /// Bytes of the ring for long messages' fragments to one peer, a power of two; made at the first such fragment.
    /// Default 256 KiB, so that the ring and the user's memory stay in the second-level cache.
    pub bulk_ring_bytes: u32,
    /// Bytes of the longest fragment, header included. Default 16376 B: a full one takes 256 slots, and the ring holds 16.
    pub bulk_limit_bytes: u32,
    /// Bytes of the shortest message that its receiver reads directly from the sender's memory, in a single copy through the
    /// kernel, where that works; 0 switches single copy off, in both directions. Default 0: on the machines of today's
    /// measurements, messages of all lengths arrive sooner through a ring.
    pub single_copy_bytes: u32,
    /// Bytes of the longest message that is read in a single copy. Longer messages are copied through a ring, since the receiver
    /// does nothing else during a single copy. At most 1 GiB. Default 1 MiB.
    pub single_copy_limit_bytes: u32,
    /// Whether peers map memory that [`Rail::share`](crate::Rail::share) made, and execute one-sided operations on it themselves.
    /// If not, this rail shares no memory and maps none, and one-sided operations travel in frames. Default `true`.
    pub share_windows: bool,
    /// Frames that the engine may hold unreleased, 1 to 32. Default 16.
    pub frames_kept: u32,
    /// Time between two checks whether the peers' processes still run. Default 250 ms.
    pub liveness_interval: Duration,
    /// Latency in nanoseconds, by which rails are ranked: lower is better. Default 100.
    pub latency_nanos: u32,
    /// Bandwidth in megabytes per second, which decides this rail's share in striping. Default 20000.
    pub bandwidth_megabytes_per_second: u32,
}

/// Slots of the ring for short frames that only control frames may take, beside one of the longest frames.
const EXTRA_CONTROL_SLOTS: u32 = 16;

/// Bytes of the longest frame that a ring of `ring` bytes allows; 0 if it allows none. `reserves`: slots are reserved for control
/// frames. With a quarter of the ring not yet returned, a frame, padding before it, and the reserved slots must fit.
pub(crate) const fn longest_frame(ring: u32, reserves: bool) -> u32 {
    let slots = ring / SLOT as u32;
    let (parts, extra) = if reserves { (3, EXTRA_CONTROL_SLOTS) } else { (2, 0) };
    let longest = (slots - slots / 4).saturating_sub(extra + 1) / parts * SLOT as u32;
    let longest = longest.saturating_sub(PREFIX as u32);
    if longest < MAX_LEN { longest } else { MAX_LEN }
}

impl Config {
    /// Defaults for rank `rank` of `ranks` in job `job`.
    pub fn new(job: u64, rank: u32, ranks: u32) -> Self {
        Self {
            directory: PathBuf::from("/dev/shm"),
            job,
            rank,
            ranks,
            clean_up: None,
            progress_thread: false,
            eager_ring_bytes: 64 << 10,
            eager_limit_bytes: 8184,
            bulk_ring_bytes: 256 << 10,
            bulk_limit_bytes: 16376,
            single_copy_bytes: 0,
            single_copy_limit_bytes: 1 << 20,
            share_windows: true,
            frames_kept: 16,
            liveness_interval: Duration::from_millis(250),
            latency_nanos: 100,
            bandwidth_megabytes_per_second: 20_000,
        }
    }

    /// Bytes of shared memory that sending to one peer takes at most: both rings with their header pages. The first ring is made
    /// with the first frame to the peer, the second with the first long message. A job of n ranks that all send long messages to
    /// each other takes n (n - 1) times as much: 1.3 GiB for 64 ranks with the defaults, or 263 MiB while messages are short.
    pub fn bytes_per_peer(&self) -> u64 {
        u64::from(self.eager_ring_bytes) + u64::from(self.bulk_ring_bytes) + 2 * crate::segment::layout::PAGE as u64
    }

    /// Shrinks the rings, and the longest frames with them, so that `local` rails of this host can all send to each other in the
    /// room that is free in the [directory](Self::directory) now, and by the limit on the size of files. The ring for long messages
    /// shrinks first. No ring shrinks below 4 KiB, so there may be too little room in the end. Rings for which there is room, and
    /// settings that are impossible, stay as they are.
    ///
    /// ```
    /// let mut config = towline_sm::Config::new(0x1234, 3, 64);
    /// config.fit(1); // a rail that is alone needs no ring
    /// assert_eq!(config.bulk_ring_bytes, 256 << 10);
    /// ```
    pub fn fit(&mut self, local: usize) {
        let rails = local as u64;
        let control = crate::segment::layout::control_bytes(self.ranks) as u64;
        let free = Room::of(&self.directory).bytes.map(|free| free.saturating_sub(rails.saturating_mul(control)));
        let pairs = rails.saturating_mul(rails.saturating_sub(1)).max(1);
        self.fit_to(free.map(|free| free / pairs), file_limit());
    }

    /// Shrinks the rings so that those to one peer take at most `share` bytes, and no file is longer than `limit`.
    fn fit_to(&mut self, share: Option<u64>, limit: Option<u64>) {
        if self.check().is_err() {
            return;
        }
        let before = (self.eager_ring_bytes, self.bulk_ring_bytes);
        loop {
            let longest = u64::from(self.eager_ring_bytes.max(self.bulk_ring_bytes)) + PAGE as u64;
            if share.is_none_or(|share| self.bytes_per_peer() <= share) && limit.is_none_or(|limit| longest <= limit) {
                break;
            }
            if self.bulk_ring_bytes > self.eager_ring_bytes.max(SHORT_BULK_RING) {
                self.bulk_ring_bytes /= 2;
            } else if self.eager_ring_bytes.max(self.bulk_ring_bytes) > LEAST_RING {
                let most = self.eager_ring_bytes.max(self.bulk_ring_bytes) / 2;
                self.eager_ring_bytes = self.eager_ring_bytes.min(most);
                self.bulk_ring_bytes = self.bulk_ring_bytes.min(most);
            } else {
                break;
            }
        }
        if (self.eager_ring_bytes, self.bulk_ring_bytes) == before {
            return;
        }
        self.eager_limit_bytes = self.eager_limit_bytes.min(longest_frame(self.eager_ring_bytes, true));
        self.bulk_limit_bytes = self.bulk_limit_bytes.min(longest_frame(self.bulk_ring_bytes, false));
        log::info!(
            "shared memory is short: rings of {} and {} B instead of {} and {} B",
            self.eager_ring_bytes,
            self.bulk_ring_bytes,
            before.0,
            before.1
        );
    }

    /// Slots of the ring for short frames that only control frames may take: enough for one of the longest, and
    /// [`EXTRA_CONTROL_SLOTS`] more.
    pub(crate) fn control_slots(&self) -> u32 {
        slots_for(self.eager_limit_bytes) + EXTRA_CONTROL_SLOTS
    }

    /// Whether the settings are possible.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let impossible = |what: &str| Err(OpenError::Config(what.to_owned()));
        if self.ranks == 0 || self.ranks > 1 << 20 || self.rank >= self.ranks {
            return impossible("rank must be below ranks, and ranks at most 2^20");
        }
        for (ring, limit, name, reserves) in [
            (self.eager_ring_bytes, self.eager_limit_bytes, "eager", true),
            (self.bulk_ring_bytes, self.bulk_limit_bytes, "bulk", false),
        ] {
            let slots = ring / SLOT as u32;
            if !ring.is_power_of_two() || !(8..=MAX_SLOTS).contains(&slots) {
                return impossible(&format!(
                    "{name}_ring_bytes is {ring}, but must be a power of two from 512 B to 64 MiB"
                ));
            }
            let longest = longest_frame(ring, reserves);
            if limit < HEAD as u32 || limit > longest {
                return impossible(&format!(
                    "{name}_limit_bytes is {limit}, but must be {HEAD} to {longest} with a ring of {ring} bytes: change the limit, \
                     or enlarge the ring"
                ));
            }
        }
        if self.single_copy_bytes > self.single_copy_limit_bytes {
            return impossible(&format!(
                "single_copy_bytes is {}, above single_copy_limit_bytes, which is {}: 0 switches single copy off",
                self.single_copy_bytes, self.single_copy_limit_bytes
            ));
        }
        if self.single_copy_limit_bytes > 1 << 30 {
            return impossible("single_copy_limit_bytes must be at most 1 GiB");
        }
        if !(1..=32).contains(&self.frames_kept) {
            return impossible("frames_kept must be 1 to 32");
        }
        if self.bandwidth_megabytes_per_second == 0 {
            return impossible("bandwidth_megabytes_per_second must not be 0");
        }
        Ok(())
    }
}

/// Whether a ring of `bytes` bytes can hold frames of `limit` bytes beside `reserved` slots: with a quarter of the ring not yet
/// returned, a frame, padding before it, and the reserved slots must fit.
pub(crate) const fn can_hold(bytes: u32, limit: u32, reserved: u32) -> bool {
    let slots = bytes / SLOT as u32;
    2 * slots_for(limit) + reserved < slots - slots / 4
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The rings and the longest frames that remain in a share of the room.
    fn fitted(share: u64, limit: Option<u64>) -> [u32; 4] {
        let mut config = Config::new(1, 0, 16);
        config.eager_limit_bytes = 8248;
        config.fit_to(Some(share), limit);
        config.check().unwrap();
        [config.eager_ring_bytes, config.bulk_ring_bytes, config.eager_limit_bytes, config.bulk_limit_bytes]
    }

    #[test]
    fn p20_rings_shrink_to_the_room_for_them_and_stay_usable() {
        assert_eq!(fitted(328 << 10, None), [64 << 10, 256 << 10, 8248, 16376], "there is room");
        assert_eq!(fitted((328 << 10) - 1, None), [64 << 10, 128 << 10, 8248, 16376]);
        assert_eq!(fitted((64 << 20) / 240, None), [64 << 10, 128 << 10, 8248, 16376], "sixteen ranks in 64 MiB");
        assert_eq!(fitted(136 << 10, None)[..2], [64 << 10, 64 << 10]);
        assert_eq!(fitted(135 << 10, None)[..2], [32 << 10, 32 << 10]);
        assert_eq!(fitted(0, None), [4096, 4096, 632, 1464], "no room at all");
        assert_eq!(fitted(u64::MAX, Some(8192)), [4096, 4096, 632, 1464], "short files");
        assert_eq!(fitted(u64::MAX, Some(100 << 10))[..2], [64 << 10, 64 << 10]);
    }

    #[test]
    fn settings_that_are_impossible_are_not_made_possible() {
        let mut config = Config { eager_limit_bytes: 60_000, ..Config::new(1, 0, 2) };
        config.fit_to(Some(0), Some(0));
        assert!(config.check().is_err());
    }

    #[test]
    fn rings_that_are_smaller_already_stay() {
        let mut config = Config::new(1, 0, 2);
        (config.eager_ring_bytes, config.eager_limit_bytes) = (2048, 64);
        (config.bulk_ring_bytes, config.bulk_limit_bytes) = (512, 64);
        config.fit_to(Some(0), Some(0));
        assert_eq!((config.eager_ring_bytes, config.bulk_ring_bytes, config.eager_limit_bytes), (2048, 512, 64));
    }
}
