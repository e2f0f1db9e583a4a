//! The settings of a rail, with their defaults.

use std::time::Duration;

use towline_core::rail::native::Pipeline;
use towline_net::JobKey;

use crate::bookkeeping::layout::Layout;
use crate::sizes::{BufferSizes, MAX_SHORT_FRAME, TRANSMISSIONS};

/// Bytes of the longest frame on the eager lane, unless it is set.
const EAGER_LIMIT: u32 = 64 * 1024 + 64;
/// Most bytes of a frame on the eager lane.
pub(crate) const MAX_EAGER: u32 = 1 << 20;
/// Most bytes of a frame.
pub(crate) const MAX_FRAME: u32 = 1 << 24;
/// The longest [`peer_timeout`](Config::peer_timeout): 30 s. The same timer of the device decides when a lost packet is sent
/// again.
pub const LONGEST_PEER_TIMEOUT: Duration = Duration::from_nanos(TRANSMISSIONS as u64 * (4096 << 20));
/// The shortest [`peer_timeout`](Config::peer_timeout): 7.3 ms.
pub const SHORTEST_PEER_TIMEOUT: Duration = Duration::from_nanos(TRANSMISSIONS as u64 * (4096 << 8));

/// The pipeline that suits a hardware device: its tables are written for each registration, which takes longer than copying a
/// short message. Not measured: no such device was available.
pub const HARDWARE_PIPELINE: Pipeline = Pipeline { least: 1 << 20, by_frames: 1 << 16, piece: 1 << 20, gets: false };
/// The pipeline that suits Soft-RoCE. A registration is cheap compared with the packets of a message, and the packets of a
/// read are the cheapest, since they are not acknowledged. From 64 KiB on, bandwidth is higher than with frames and latency
/// is no worse; below 64 KiB latency is worse.
pub const SOFT_ROCE_PIPELINE: Pipeline = Pipeline { least: 1 << 16, by_frames: 0, piece: 1 << 20, gets: true };

/// Settings of a rail.
#[derive(Clone, Debug)]
pub struct Config {
    /// The job's id.
    pub job: u64,
    /// The rank.
    pub rank: u32,
    /// The job's secret.
    pub key: JobKey,
    /// Number of the link, where there are several: links of the same number are connected.
    pub link: u8,
    /// Which port is used, where there are several: the `turn`-th of those that are up and selected, modulo their number.
    /// Where the ports are on several networks, a link uses the ports of one network. Default: 0.
    pub turn: u32,
    /// Whether a progress thread uses this rail while the user computes. The rail only states this in its attributes, so that the
    /// engine above protects the data that it shares with that thread. Default: `false`.
    pub progress_thread: bool,

    /// Devices, or ports such as `mlx5_0:1`, that may be used; empty for all. Default: empty.
    pub devices: Vec<String>,
    /// Index of the address in the port's table of GIDs; `None`: the rail chooses ([`choose_gid`](crate::port::choose_gid)).
    /// Default: `None`.
    pub gid_index: Option<u32>,
    /// Most bytes of payload in a packet, if less than both ports' MTU; 0 for the ports' MTU. Default: 0.
    pub path_mtu_bytes: u32,
    /// Quality of service of the packets: traffic class with RoCE, service level with InfiniBand. Default: 0.
    pub traffic_class: u8,

    /// Bytes of the longest frame on the eager and control lanes, header included. Default: 65600 B, which is 64 KiB and a
    /// header. Up to that length one frame costs less than a rendezvous, which is three frames and a round trip. The limit is
    /// lower where the device moves shorter messages itself ([`pipeline`](Self::pipeline)).
    pub eager_limit_bytes: u32,
    /// Most bytes of the body that goes with a rendezvous header. Default: 8 KiB.
    pub rendezvous_eager_limit_bytes: u32,
    /// Bytes of the longest frame on the bulk lane, header included. Default: 65600 B.
    pub max_send_size_bytes: u32,
    /// Frames of up to this many bytes travel inline, within the work request, as far as the device supports that. Default: 220.
    pub inline_bytes: u32,
    /// Receive buffers of `max_send_size_bytes`, shared by all peers. Buffers whose frames were read are posted again
    /// together, at the latest when there are 16 of them, or an eighth of all buffers. Default: 128.
    pub receive_buffers: u32,
    /// Send buffers of `eager_limit_bytes`, but of 8256 B at most, shared by all peers. Only control frames may take the last
    /// eighth of them. Default: 256.
    pub eager_buffers: u32,
    /// Send buffers of `max_send_size_bytes` for longer frames, shared by all peers. Default: 64.
    pub bulk_buffers: u32,
    /// Most frames in flight to one peer. Default: 64.
    pub send_queue_frames: u32,
    /// The device reports the completion of every `signal_every`-th frame. When no frame follows for a while, it reports that of
    /// the last frame, too. Default: 8.
    pub signal_every: u32,
    /// Whether the device executes puts, gets and atomics on the memory of peers itself, as far as it can. Default: `true`.
    pub one_sided: bool,
    /// Which long messages the device moves by itself, from registered memory to registered memory. Default: `None`, which stands
    /// for the pipeline that suits the device: [`HARDWARE_PIPELINE`] or [`SOFT_ROCE_PIPELINE`].
    pub pipeline: Option<Pipeline>,
    /// Bandwidth in megabytes per second, which decides this rail's share in striping. Default: 6000.
    pub bandwidth_megabytes_per_second: u32,
    /// Latency in nanoseconds, by which rails are ranked: lower is better. Default: 1500.
    pub latency_nanos: u32,

    /// Longest time from the first use of a peer until its connection is established; then the peer is lost. A peer that computes
    /// and does not poll answers late, so the time must be longer than that. Default: 120 s.
    pub connect_timeout: Duration,
    /// How long a peer's device may fail to acknowledge before the peer is lost. Our device sends seven times in that time. The
    /// device acknowledges, not the process, so a peer that computes or is stopped is not lost. At most [`LONGEST_PEER_TIMEOUT`];
    /// zero means [`LONGEST_PEER_TIMEOUT`], too. Default: 5 s.
    pub peer_timeout: Duration,
    /// A keepalive is sent to a peer from which nothing was acknowledged for this long; the peer's device acknowledges it.
    /// Zero: no keepalives. Default: 1 s.
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
            eager_limit_bytes: EAGER_LIMIT,
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

    /// Bytes of memory that are registered with the device when the rail is made.
    pub fn bytes(&self) -> u64 {
        Layout::of(&self.clone().normalized(HARDWARE_PIPELINE).buffer_sizes()).bytes as u64
    }

    /// The same settings with impossible values replaced by the nearest possible ones. `suitable` is the pipeline that suits the
    /// device.
    pub(crate) fn normalized(mut self, suitable: Pipeline) -> Self {
        self.eager_limit_bytes = self.eager_limit_bytes.clamp(256, MAX_EAGER);
        // This comes before the pipeline lowers the eager limit, so that the longest frame is the same with all devices of a job.
        self.max_send_size_bytes = self.max_send_size_bytes.clamp(self.eager_limit_bytes, MAX_FRAME);
        let mut suitable = suitable;
        if self.eager_limit_bytes != EAGER_LIMIT {
            // The user has set the limit, but has not decided which messages the device moves.
            suitable.least = suitable.least.max(self.eager_limit_bytes.into());
        }
        let pipeline = *self.pipeline.get_or_insert(suitable);
        if self.one_sided && pipeline.piece != 0 {
            // A message that the device is to move does not travel in a single frame.
            let least = u32::try_from(pipeline.least).unwrap_or(u32::MAX).max(MAX_SHORT_FRAME);
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

    /// Bytes of the longest frame that an eager buffer holds.
    #[inline]
    pub(crate) const fn short_bytes(&self) -> u32 {
        if self.eager_limit_bytes < MAX_SHORT_FRAME { self.eager_limit_bytes } else { MAX_SHORT_FRAME }
    }

    /// Numbers and sizes of the buffers.
    pub(crate) const fn buffer_sizes(&self) -> BufferSizes {
        BufferSizes {
            receive: self.receive_buffers,
            eager: self.eager_buffers,
            bulk: self.bulk_buffers,
            short_bytes: self.short_bytes(),
            frame_bytes: self.max_send_size_bytes,
        }
    }

    /// Time that the device waits for an acknowledgement, by the number that verbs have for it: 4.096 us times two to the
    /// power of this number.
    #[cfg_attr(not(any(test, feature = "device")), expect(dead_code, reason = "of the rail, which is not built in"))]
    pub(crate) fn ack_timeout(&self) -> u8 {
        let each = self.peer_timeout.as_nanos() / u128::from(TRANSMISSIONS);
        (8..=20).rev().find(|exponent| 4096u128 << exponent <= each).unwrap_or(8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_transmissions_fit_the_timeout() {
        let mut config = Config::new(1, 0, JobKey::new([0; 32]));
        assert_eq!(config.ack_timeout(), 17, "0.54 s, seven times");
        for (asked, normalized, exponent) in [
            (Duration::ZERO, LONGEST_PEER_TIMEOUT, 20),
            (Duration::from_secs(1 << 20), LONGEST_PEER_TIMEOUT, 20),
            (LONGEST_PEER_TIMEOUT, LONGEST_PEER_TIMEOUT, 20),
            (Duration::from_secs(30), Duration::from_secs(30), 19),
            (Duration::from_nanos(1), SHORTEST_PEER_TIMEOUT, 8),
        ] {
            config.peer_timeout = asked;
            config = config.normalized(HARDWARE_PIPELINE);
            assert_eq!((config.peer_timeout, config.ack_timeout()), (normalized, exponent), "{asked:?}");
        }
    }

    #[test]
    fn messages_that_the_device_moves_do_not_travel_in_one_frame() {
        let config = || Config::new(1, 0, JobKey::new([0; 32]));
        let set = |limit| Config { eager_limit_bytes: limit, ..config() }.normalized(SOFT_ROCE_PIPELINE);
        assert_eq!((set(1 << 20).eager_limit_bytes, set(1 << 20).pipeline.unwrap().least), (1 << 20, 1 << 20));
        assert_eq!((set(4096).eager_limit_bytes, set(4096).pipeline), (4096, Some(SOFT_ROCE_PIPELINE)));
        let limit = |least, piece| {
            let pipeline = Some(Pipeline { least, piece, ..HARDWARE_PIPELINE });
            Config { pipeline, ..config() }.normalized(SOFT_ROCE_PIPELINE).eager_limit_bytes
        };
        let all = [limit(1 << 20, 4096), limit(20_000, 4096), limit(0, 4096), limit(20_000, 0), limit(u64::MAX, 4096)];
        assert_eq!(all, [65_600, 20_000, 8256, 65_600, 65_600]);
        let configs = [HARDWARE_PIPELINE, SOFT_ROCE_PIPELINE].map(|suitable| config().normalized(suitable));
        assert_eq!(
            configs.each_ref().map(|config| config.eager_limit_bytes),
            [65_600, 65_536],
            "of 64 KiB and a header"
        );
        assert_eq!(configs.map(|config| config.pipeline), [Some(HARDWARE_PIPELINE), Some(SOFT_ROCE_PIPELINE)]);
        // A peer that receives shorter frames than the others send is refused.
        let pipelines = [HARDWARE_PIPELINE, SOFT_ROCE_PIPELINE];
        let normalized = |suitable| Config { max_send_size_bytes: 1, ..config() }.normalized(suitable);
        let longest = pipelines.map(|suitable| normalized(suitable).max_send_size_bytes);
        assert_eq!(longest, [65_600; 2]);
    }

    #[test]
    fn the_memory_is_stated_and_the_key_is_not_shown() {
        let config = Config::new(1, 0, JobKey::new([0xAB; 32]));
        assert!((12 << 20..16 << 20).contains(&config.bytes()), "{}", config.bytes());
        let shown = format!("{config:?}");
        assert!(!shown.contains("171") && !shown.to_lowercase().contains("abab"), "{shown}");
    }
}
