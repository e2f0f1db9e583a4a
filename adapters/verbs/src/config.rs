//! All that can be set on a rail, with defaults that work.

use std::time::Duration;

use towline_core::rail::native::Pipeline;
use towline_tcp::JobKey;

/// How often the device sends what nobody acknowledges. Eight times is the most that it can be told, which Soft-RoCE takes for
/// ever.
pub(crate) const TRIES: u32 = 7;

/// The longest frame that takes an eager buffer; longer ones take a bulk one.
const SHORT: u32 = 8 * 1024 + 64;

/// The longest [`peer_timeout`](Config::peer_timeout): 30 s. By the same clock the device sends again what was lost.
pub const LONGEST_PEER_TIMEOUT: Duration = Duration::from_nanos(TRIES as u64 * (4096 << 20));
/// The shortest one: 7.3 ms.
const SHORTEST_PEER_TIMEOUT: Duration = Duration::from_nanos(TRIES as u64 * (4096 << 8));

/// What suits a device in hardware: its tables are written for each registration, which takes longer than a copy of what is short.
/// Unproved: no such device was at hand.
pub const HARDWARE_PIPELINE: Pipeline = Pipeline { least: 1 << 20, by_frames: 1 << 16, piece: 1 << 20, gets: false };
/// What suits Soft-RoCE, where a registration is cheap beside the packets of a message, and those of a read are the cheapest,
/// since nothing acknowledges them: from 64 KiB on bandwidth is higher than with frames and latency no worse, below latency is.
pub const SOFT_ROCE_PIPELINE: Pipeline = Pipeline { least: 1 << 16, by_frames: 0, piece: 1 << 20, gets: true };

/// Settings of a rail.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which job.
    pub job: u64,
    /// Which rank.
    pub rank: u32,
    /// The job's secret.
    pub key: JobKey,
    /// Which of several links: those of the same number meet.
    pub link: u8,
    /// Which port is used, where there are several: so-many-th of those that are up and allowed, and from the first again; of
    /// several networks a link uses the ports of one. Default: 0.
    pub turn: u32,
    /// A thread makes progress although nobody polls: told to others, no more. Default: no.
    pub progress_thread: bool,

    /// Devices, or ports such as `mlx5_0:1`, that alone are used; empty for all.
    pub devices: Vec<String>,
    /// Place of the address in the port's table; `None` to choose. Default: `None`.
    pub gid_index: Option<u32>,
    /// Bytes of a packet at most, if less than what both ports carry; 0 for as many as they do. Default: 0.
    pub path_mtu_bytes: u32,
    /// Mark of the packets for the network's quality of service: traffic class with RoCE, service level with InfiniBand.
    /// Default: 0.
    pub traffic_class: u8,

    /// Longest frame on the eager and control lanes, header included. Default: 64 KiB and 64: up to there one frame is less than the
    /// three, and a round trip, of a rendezvous. Less where devices move shorter messages ([`pipeline`](Self::pipeline)).
    pub eager_limit_bytes: u32,
    /// Body that goes with a rendezvous header, at most. Default: 8 KiB.
    pub rendezvous_eager_limit_bytes: u32,
    /// Longest frame on the bulk lane, header included. Default: 64 KiB and 64.
    pub max_send_size_bytes: u32,
    /// Frames up to this length go with the work request itself, as far as the device can do that. Default: 220.
    pub inline_bytes: u32,
    /// Buffers of `max_send_size_bytes` for what comes, from all peers. The device lacks fewer than an eighth of them, and than 16,
    /// for what was read: they go back together. Default: 128.
    pub receive_buffers: u32,
    /// Buffers of `eager_limit_bytes`, 8 KiB and 64 at most, for what leaves, to all peers; an eighth is for control frames alone.
    /// Default: 256.
    pub eager_buffers: u32,
    /// Buffers of `max_send_size_bytes` for what leaves and is longer than those, to all peers. Default: 64.
    pub bulk_buffers: u32,
    /// Frames under way to one peer, at most. Default: 64.
    pub send_queue_frames: u32,
    /// The device tells of each so-many-th frame that it has left, and of a last one when nothing follows for a while.
    /// Default: 8.
    pub signal_every: u32,
    /// The device puts to memory of peers, gets from it and changes words there by itself, as far as it can. Default: yes.
    pub one_sided: bool,
    /// Which long messages of an engine the device moves by itself, between registered memory. Default: `None`, which is what suits
    /// the device: [`HARDWARE_PIPELINE`] or [`SOFT_ROCE_PIPELINE`].
    pub pipeline: Option<Pipeline>,
    /// Share in striping. Default: 6000.
    pub bandwidth_megabytes_per_second: u32,
    /// Rank by latency. Default: 1500.
    pub latency_nanos: u32,

    /// From first use of a peer to its connection being ready. It must allow for a peer that computes and does not poll.
    /// Default: 120 s.
    pub connect_timeout: Duration,
    /// How long a peer's device may answer nothing before the peer is lost: the device sends seven times in that. It is the
    /// device that answers, so a peer that computes or is stopped is not lost. At most [`LONGEST_PEER_TIMEOUT`], which zero means,
    /// too. Default: 5 s.
    pub peer_timeout: Duration,
    /// A peer that nothing was heard of for so long is asked for a sign of life, which its device gives; zero: never. Default: 1 s.
    pub heartbeat: Duration,
}

impl Config {
    /// The defaults for rank `rank` of job `job`.
    pub const fn new(job: u64, rank: u32, key: JobKey) -> Self {
        Self {
            job,
            rank,
            key,
            link: 0,
            turn: 0,
            progress_thread: false,
            devices: Vec::new(),
            gid_index: None,
            path_mtu_bytes: 0,
            traffic_class: 0,
            eager_limit_bytes: 64 * 1024 + 64,
            rendezvous_eager_limit_bytes: 8 * 1024,
            max_send_size_bytes: 64 * 1024 + 64,
            inline_bytes: 220,
            receive_buffers: 128,
            eager_buffers: 256,
            bulk_buffers: 64,
            send_queue_frames: 64,
            signal_every: 8,
            one_sided: true,
            pipeline: None,
            bandwidth_megabytes_per_second: 6000,
            latency_nanos: 1500,
            connect_timeout: Duration::from_secs(120),
            peer_timeout: Duration::from_secs(5),
            heartbeat: Duration::from_secs(1),
        }
    }

    /// Memory that is registered with the device when the rail is made, in bytes.
    pub fn bytes(&self) -> u64 {
        crate::bookkeeping::layout::Layout::of(&self.clone().sane(HARDWARE_PIPELINE)).bytes as u64
    }

    /// The same with impossible values made possible, for a device that this suits.
    pub(crate) fn sane(mut self, suits: Pipeline) -> Self {
        self.eager_limit_bytes = self.eager_limit_bytes.clamp(256, 1 << 20);
        // Before what the device makes of it: frames are as long over all devices of a job.
        self.max_send_size_bytes = self.max_send_size_bytes.clamp(self.eager_limit_bytes, 1 << 24);
        let pipeline = *self.pipeline.get_or_insert(suits);
        if self.one_sided && pipeline.piece != 0 {
            // What devices are to move goes in no frame of its own.
            let least = u32::try_from(pipeline.least).unwrap_or(u32::MAX).max(SHORT);
            self.eager_limit_bytes = self.eager_limit_bytes.min(least);
        }
        self.rendezvous_eager_limit_bytes = self.rendezvous_eager_limit_bytes.min(self.eager_limit_bytes);
        self.receive_buffers = self.receive_buffers.clamp(4, 1 << 14);
        self.eager_buffers = self.eager_buffers.clamp(8, 1 << 14);
        self.bulk_buffers = self.bulk_buffers.clamp(1, 1 << 14);
        self.send_queue_frames = self.send_queue_frames.clamp(4, 1 << 12);
        self.signal_every = self.signal_every.clamp(1, self.send_queue_frames / 2);
        self.bandwidth_megabytes_per_second = self.bandwidth_megabytes_per_second.max(1);
        if self.peer_timeout.is_zero() {
            self.peer_timeout = LONGEST_PEER_TIMEOUT;
        }
        self.peer_timeout = self.peer_timeout.clamp(SHORTEST_PEER_TIMEOUT, LONGEST_PEER_TIMEOUT);
        self
    }

    /// Longest frame that an eager buffer holds.
    #[inline]
    pub(crate) const fn short_bytes(&self) -> u32 {
        if self.eager_limit_bytes < SHORT { self.eager_limit_bytes } else { SHORT }
    }

    /// Number by which verbs name the time that the device waits for an acknowledgement: 4.096 us, doubled so often.
    #[cfg_attr(not(any(test, feature = "device")), expect(dead_code, reason = "of the rail, which is not built in"))]
    pub(crate) fn ack_timeout(&self) -> u8 {
        let each = self.peer_timeout.as_nanos() / u128::from(TRIES);
        (8..=20).rev().find(|exponent| 4096u128 << exponent <= each).unwrap_or(8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tries_fit_the_timeout() {
        let mut config = Config::new(1, 0, JobKey::new([0; 32]));
        assert_eq!(config.ack_timeout(), 17, "0.54 s, seven times");
        for (asked, sane, exponent) in [
            (Duration::ZERO, LONGEST_PEER_TIMEOUT, 20),
            (Duration::from_secs(1 << 20), LONGEST_PEER_TIMEOUT, 20),
            (LONGEST_PEER_TIMEOUT, LONGEST_PEER_TIMEOUT, 20),
            (Duration::from_secs(30), Duration::from_secs(30), 19),
            (Duration::from_nanos(1), SHORTEST_PEER_TIMEOUT, 8),
        ] {
            config.peer_timeout = asked;
            config = config.sane(HARDWARE_PIPELINE);
            assert_eq!((config.peer_timeout, config.ack_timeout()), (sane, exponent), "{asked:?}");
        }
    }

    #[test]
    fn what_devices_are_to_move_goes_in_no_frame_of_its_own() {
        let config = || Config::new(1, 0, JobKey::new([0; 32]));
        let limit = |least, piece| {
            let pipeline = Some(Pipeline { least, piece, ..HARDWARE_PIPELINE });
            Config { pipeline, ..config() }.sane(SOFT_ROCE_PIPELINE).eager_limit_bytes
        };
        let all = [limit(1 << 20, 4096), limit(20_000, 4096), limit(0, 4096), limit(20_000, 0), limit(u64::MAX, 4096)];
        assert_eq!(all, [65_600, 20_000, 8256, 65_600, 65_600]);
        let suits = [HARDWARE_PIPELINE, SOFT_ROCE_PIPELINE].map(|suits| config().sane(suits));
        assert_eq!(suits.each_ref().map(|config| config.eager_limit_bytes), [65_600, 65_536], "of 64 KiB and a header");
        assert_eq!(suits.map(|config| config.pipeline), [Some(HARDWARE_PIPELINE), Some(SOFT_ROCE_PIPELINE)]);
        // Who takes shorter frames than others send is refused.
        let suits = [HARDWARE_PIPELINE, SOFT_ROCE_PIPELINE];
        let longest = suits.map(|suits| Config { max_send_size_bytes: 1, ..config() }.sane(suits).max_send_size_bytes);
        assert_eq!(longest, [65_600; 2]);
    }

    #[test]
    fn the_memory_is_told_and_the_key_is_not() {
        let config = Config::new(1, 0, JobKey::new([0xAB; 32]));
        assert!((12 << 20..16 << 20).contains(&config.bytes()), "{}", config.bytes());
        let shown = format!("{config:?}");
        assert!(!shown.contains("171") && !shown.to_lowercase().contains("abab"), "{shown}");
    }
}
