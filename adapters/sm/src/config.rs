//! What can be set, and what each setting costs.

use std::path::PathBuf;
use std::time::Duration;

use towline_core::rail::HEAD;

use crate::error::OpenError;
use crate::ring::{MAX_LEN, MAX_SLOTS, PREFIX, SLOT, slots_for};

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
    /// Where the segments lie: a file system in memory, the same for all ranks. Default `/dev/shm`.
    pub directory: PathBuf,
    /// Which job this is: segments of other jobs are never touched, except to remove those whose processes are gone.
    pub job: u64,
    /// This rail's own number among all rails of the job, below `ranks`. Two contexts of one process take two numbers.
    pub rank: u32,
    /// How many numbers there are: the doorbell has two bits for each. At most 2^20.
    pub ranks: u32,
    /// Whether a thread makes progress on this rail while its user computes, so that whoever is above protects what it shares
    /// with it: said in the attributes, and nothing else. Default `false`.
    pub progress_thread: bool,
    /// Bytes of the ring for short frames to one peer, a power of two. Default 64 KiB.
    pub eager_ring_bytes: u32,
    /// Longest short frame, header included. Default 8184 B, which is 128 slots.
    pub eager_limit_bytes: u32,
    /// Bytes of the ring for long messages' fragments to one peer, a power of two; made at the first such fragment.
    /// Default 256 KiB, so that ring and user's memory stay in the second-level cache.
    pub bulk_ring_bytes: u32,
    /// Longest fragment, header included. Default 16376 B: a full one takes 256 slots, and the ring holds 16.
    pub bulk_limit_bytes: u32,
    /// Messages from so many bytes on may be read by their receiver from where they lie, in a single copy through the
    /// kernel, where that works; 0 switches that off, also for what comes in. Default 8192 B.
    pub single_copy_bytes: u32,
    /// Longer messages are copied, since the receiver does nothing else during a single copy. Default 1 MiB.
    pub single_copy_limit_bytes: u32,
    /// Whether memory that is made for it is mapped by peers, who do one-sided operations on it themselves; else these go by frames,
    /// also where a peer shares its own. Default `true`.
    pub share_windows: bool,
    /// Frames that the engine may hold unreleased, 1 to 32. Default 16.
    pub frames_kept: u32,
    /// How often to look whether peers still live. Default 250 ms.
    pub liveness_interval: Duration,
    /// Rank by latency in nanoseconds, lower is better. Default 100.
    pub latency_nanos: u32,
    /// Megabytes per second, for striping. Default 20000.
    pub bandwidth_megabytes_per_second: u32,
}

/// One setting for people to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunable {
    /// Its name: that of the field of [`Config`].
    pub name: &'static str,
    /// Its value, in `unit`.
    pub value: String,
    /// Its unit; empty for names.
    pub unit: &'static str,
    /// What it does.
    pub help: &'static str,
}

impl Config {
    /// Defaults for rank `rank` of `ranks` in job `job`.
    pub fn new(job: u64, rank: u32, ranks: u32) -> Self {
        Self {
            directory: PathBuf::from("/dev/shm"),
            job,
            rank,
            ranks,
            progress_thread: false,
            eager_ring_bytes: 64 << 10,
            eager_limit_bytes: 8184,
            bulk_ring_bytes: 256 << 10,
            bulk_limit_bytes: 16376,
            single_copy_bytes: 8192,
            single_copy_limit_bytes: 1 << 20,
            share_windows: true,
            frames_kept: 16,
            liveness_interval: Duration::from_millis(250),
            latency_nanos: 100,
            bandwidth_megabytes_per_second: 20_000,
        }
    }

    /// Shared memory that sending to one peer takes at most: both rings with their header pages. The first is taken with
    /// the first frame to the peer, the second with the first long message. A job of n ranks that all send long messages
    /// to each other takes n (n - 1) times as much: 64 ranks with the defaults 1.3 GiB, or 263 MiB while messages are
    /// short.
    pub fn bytes_per_peer(&self) -> u64 {
        u64::from(self.eager_ring_bytes) + u64::from(self.bulk_ring_bytes) + 2 * crate::segment::layout::PAGE as u64
    }

    /// Every setting with its value, unit and meaning.
    pub fn tunables(&self) -> Vec<Tunable> {
        let tunable =
            |name, value: &dyn std::fmt::Display, unit, help| Tunable { name, value: value.to_string(), unit, help };
        vec![
            tunable("directory", &self.directory.display(), "", "file system in memory that holds the segments"),
            tunable("eager_ring_bytes", &self.eager_ring_bytes, "B", "ring for short frames, per peer sent to"),
            tunable("eager_limit_bytes", &self.eager_limit_bytes, "B", "longest short frame, header included"),
            tunable("bulk_ring_bytes", &self.bulk_ring_bytes, "B", "ring for fragments of long messages, per peer"),
            tunable("bulk_limit_bytes", &self.bulk_limit_bytes, "B", "longest fragment, header included"),
            tunable(
                "single_copy_bytes",
                &self.single_copy_bytes,
                "B",
                "messages from so many bytes on may be read through the kernel; 0 for none",
            ),
            tunable(
                "single_copy_limit_bytes",
                &self.single_copy_limit_bytes,
                "B",
                "longer messages are copied through a ring",
            ),
            tunable("share_windows", &self.share_windows, "", "peers map memory for one-sided operations"),
            tunable("frames_kept", &self.frames_kept, "", "frames that may be held unreleased"),
            tunable(
                "liveness_interval",
                &self.liveness_interval.as_millis(),
                "ms",
                "how often dead peers are looked for",
            ),
            tunable("latency_nanos", &self.latency_nanos, "ns", "rank by latency, lower is preferred"),
            tunable(
                "bandwidth_megabytes_per_second",
                &self.bandwidth_megabytes_per_second,
                "MB/s",
                "share in striping",
            ),
        ]
    }

    /// Slots of the short frames' ring that only control frames may take: one of the longest, and then some.
    pub(crate) fn control_slots(&self) -> u32 {
        slots_for(self.eager_limit_bytes) + 16
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let wrong = |what: &str| Err(OpenError::Config(what.to_owned()));
        if self.ranks == 0 || self.ranks > 1 << 20 || self.rank >= self.ranks {
            return wrong("rank must be below ranks, and ranks at most 2^20");
        }
        for (ring, limit, name, kept) in [
            (self.eager_ring_bytes, self.eager_limit_bytes, "eager", self.control_slots()),
            (self.bulk_ring_bytes, self.bulk_limit_bytes, "bulk", 0),
        ] {
            let slots = ring / SLOT as u32;
            if !ring.is_power_of_two() || !(8..=MAX_SLOTS).contains(&slots) {
                return wrong(&format!("{name}_ring_bytes must be a power of two from 512 B to 64 MiB"));
            }
            if limit < HEAD as u32 || limit > MAX_LEN || limit as usize + PREFIX > ring as usize {
                return wrong(&format!("{name}_limit_bytes must be at least {HEAD} and fit the ring"));
            }
            // With a quarter of the ring not yet given back, a frame, padding before it, and the kept slots must fit.
            if 2 * slots_for(limit) + kept >= slots - slots / 4 {
                return wrong(&format!(
                    "{name}_limit_bytes is too long for {name}_ring_bytes: enlarge the ring fourfold"
                ));
            }
        }
        if self.single_copy_limit_bytes > 1 << 30 {
            return wrong("single_copy_limit_bytes must be at most 1 GiB");
        }
        if !(1..=32).contains(&self.frames_kept) {
            return wrong("frames_kept must be 1 to 32");
        }
        if self.bandwidth_megabytes_per_second == 0 {
            return wrong("bandwidth must not be 0");
        }
        Ok(())
    }
}
