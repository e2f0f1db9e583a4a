//! All that can be set on a rail, with defaults that work.

use std::net::SocketAddr;
use std::time::Duration;

use towline_net::interfaces::Filter;
use towline_net::{Encrypt, JobKey};

use crate::datagram::{PREFIX, SEALED};
use crate::queues::inbox::SLOT;

/// Longest datagram over IPv4, and little less than over IPv6.
pub(crate) const MOST: u32 = 65_507;
/// Shortest that every path carries whole (RFC 8200: 1280 with headers).
const LEAST: u32 = 1232;
/// Datagrams under the same keys after which new ones are asked for: AES-GCM is good for several times as many (RFC 8446).
const RENEW: u64 = 1 << 22;
/// Staging for control frames beside that for others, in frames of the longest.
const CONTROL_FRAMES: u32 = 4;

/// What a [`Rail`](crate::Rail) is made from. [`Config::new`] gives the defaults.
///
/// ```
/// use towline_net::JobKey;
/// use towline_udp::Config;
///
/// let mut config = Config::new(0x70B, 3, JobKey::new([7; 32]));
/// config.filter.include = vec!["eth*".into()];
/// assert_eq!(config.sign, None);
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// Which job this process belongs to. Not secret.
    pub job: u64,
    /// Rank of this process in the job. Peers are told apart by it.
    pub rank: u32,
    /// The job's secret.
    pub key: JobKey,
    /// When datagrams are encrypted; the same at all ranks. Whoever has it otherwise is refused. Encrypted ones are not signed
    /// besides. Default: [`Encrypt::BetweenHosts`].
    pub encrypt: Encrypt,
    /// Encrypted datagrams to a peer after which new keys are agreed on; 2^22 at most. Default: 2^22.
    pub renew_after_datagrams: u64,
    /// Number of this link among those of the process. Link `n` speaks to link `n` of the peer; each is a rail of its own, and
    /// uses another interface where there are several.
    pub link: u8,
    /// A thread of its own sees to the rail while the program does not: said in its attributes. Default: `false`.
    pub progress_thread: bool,
    /// Which interfaces may be used. Default: all but container bridges.
    pub filter: Filter,
    /// Takes the loopback before any other interface: for jobs that stay on one host. Default: `false`.
    pub within_host: bool,
    /// Ports to use, tried in order; 0 lets the system choose. Default: `0..=0`.
    pub ports: std::ops::RangeInclusive<u16>,
    /// Where peers are to send to instead: an address that forwards to this rail. Default: `None`.
    pub advertise: Option<SocketAddr>,

    /// Longest datagram, in bytes; 0 for what goes whole through the interface, up to 16 KiB. Default: 0.
    pub datagram_bytes: u32,
    /// Signs each datagram; `None`: unless it stays on this host. If either end signs, both do. Default: `None`.
    pub sign: Option<bool>,
    /// Lets the kernel cut and join datagrams where it can. Default: `true`.
    pub segmentation: bool,
    /// Megabytes per second that leave at most; 0 for as many as it goes. Default: 0.
    pub pacing_megabytes_per_second: u32,
    /// Megabytes per second of this link, for the shares of striping. Default: 2000.
    pub bandwidth_megabytes_per_second: u32,
    /// Rank by latency, in nanoseconds. Default: 5000.
    pub latency_nanos: u32,

    /// Frames that wait to leave, in bytes of the rail. Default: 128 KiB.
    pub send_staging_bytes: u32,
    /// Frames that wait to leave. Default: 512.
    pub send_queue_frames: u32,
    /// Short frames between two polls that leave at once, each by a call of its own; further ones wait for each other.
    /// Default: 2.
    pub frames_at_once: u32,
    /// Frames that the reader may keep. Default: 32.
    pub frames_kept: u32,
    /// The kernel's send buffer, in bytes. The system's `net.core.wmem_max` bounds it. Default: 4 MiB.
    pub socket_send_buffer_bytes: u32,
    /// The kernel's receive buffer, in bytes: what comes while it is full is lost. The system's `net.core.rmem_max` bounds it.
    /// Default: 4 MiB.
    pub socket_receive_buffer_bytes: u32,
    /// Polls between two looks at the socket, once nothing came for a while. Default: 4.
    pub idle_interval_polls: u32,

    /// From first use of a peer to its being ready. It must allow for a peer that computes and does not poll. Default: 120 s.
    pub connect_timeout: Duration,
    /// Longest time between two hellos to a peer that does not answer. Default: 50 ms.
    pub hello_interval: Duration,
}

impl Config {
    /// The defaults for rank `rank` of job `job`.
    pub fn new(job: u64, rank: u32, key: JobKey) -> Self {
        Self {
            job,
            rank,
            key,
            encrypt: Encrypt::BetweenHosts,
            renew_after_datagrams: RENEW,
            link: 0,
            progress_thread: false,
            filter: Filter::default(),
            within_host: false,
            ports: 0..=0,
            advertise: None,
            datagram_bytes: 0,
            sign: None,
            segmentation: true,
            pacing_megabytes_per_second: 0,
            bandwidth_megabytes_per_second: 2000,
            latency_nanos: 5000,
            send_staging_bytes: 128 * 1024,
            send_queue_frames: 512,
            frames_at_once: 2,
            frames_kept: 32,
            socket_send_buffer_bytes: 4 << 20,
            socket_receive_buffer_bytes: 4 << 20,
            idle_interval_polls: 4,
            connect_timeout: Duration::from_secs(120),
            hello_interval: Duration::from_millis(50),
        }
    }

    /// Memory that a rail takes at most, in bytes: staging, and buffers that are touched as they are used. The kernel's come on
    /// top.
    ///
    /// ```
    /// let config = towline_udp::Config::new(1, 0, towline_net::JobKey::new([0; 32]));
    /// assert!(config.bytes() < 4 << 20);
    /// ```
    pub fn bytes(&self) -> u64 {
        let config = self.clone().sane();
        u64::from(config.slots()) * SLOT as u64 + config.staging(MOST) as u64
    }

    /// The same with impossible values made possible.
    pub(crate) fn sane(mut self) -> Self {
        if self.datagram_bytes != 0 {
            self.datagram_bytes = self.datagram_bytes.clamp(256, MOST);
        }
        self.bandwidth_megabytes_per_second = self.bandwidth_megabytes_per_second.max(1);
        self.renew_after_datagrams = self.renew_after_datagrams.clamp(1, RENEW);
        self.send_staging_bytes = self.send_staging_bytes.clamp(1, 1 << 30);
        self.send_queue_frames = self.send_queue_frames.clamp(4, 1 << 16);
        self.frames_kept = self.frames_kept.clamp(1, 1024);
        self.idle_interval_polls = self.idle_interval_polls.max(1);
        self.hello_interval = self.hello_interval.max(Duration::from_millis(1));
        self
    }

    /// Longest datagram by an interface that carries so many bytes at once.
    pub(crate) fn datagram(&self, mtu: u32, v4: bool) -> u32 {
        let headers = if v4 { 28 } else { 48 };
        let whole = mtu.saturating_sub(headers).clamp(LEAST.min(mtu), MOST);
        match self.datagram_bytes {
            0 => whole.min(AUTOMATIC),
            asked => asked.min(whole),
        }
    }

    /// Bytes of staging for datagrams of up to `datagram` bytes: those of bulk and eager frames, and what is control frames'
    /// alone.
    pub(crate) fn staging(&self, datagram: u32) -> usize {
        self.send_staging_bytes.max(2 * datagram) as usize + Self::control(datagram)
    }

    pub(crate) const fn control(datagram: u32) -> usize {
        (CONTROL_FRAMES * datagram) as usize
    }

    /// Receive buffers: one for each frame that may be kept, and some to receive into meanwhile.
    pub(crate) const fn slots(&self) -> u32 {
        self.frames_kept + 8
    }
}

/// What a datagram takes at most where nothing else is asked for: several of them leave in one call, and none of them is much of
/// what a receiver's kernel keeps.
const AUTOMATIC: u32 = 16_352;

const _: () = assert!(PREFIX + SEALED < LEAST as usize && SLOT >= MOST as usize);
