//! All that can be set on a rail, with defaults that work.

use std::time::Duration;

use towline_core::btl::Event;
use towline_net::interfaces::Filter;
use towline_net::{Encrypt, JobKey};

use crate::framing::PREFIX;
use crate::rail::Stream;
use crate::stream::outbox::{CONTROL_FRAMES, IN_PLACE_MAX, Place};

/// What a [`Rail`](crate::Rail) is made from. [`Config::new`] gives the defaults.
///
/// ```
/// use towline_tcp::{Config, JobKey};
///
/// let mut config = Config::new(0x70B, 3, JobKey::new([7; 32]));
/// config.link = 1;
/// config.filter.include = vec!["eth*".into(), "10.0.0.0/8".into()];
/// assert_eq!(config.in_place_from_bytes, 8 * 1024);
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// Which job this process belongs to. Not secret.
    pub job: u64,
    /// Rank of this process in the job. Peers are told apart by it.
    pub rank: u32,
    /// The job's secret.
    pub key: JobKey,
    /// When connections are encrypted; the same at all ranks. Whoever has it otherwise is refused. On one host are ranks that
    /// say the same of theirs ([`host`](Self::host)), whatever forwards their connections. What it costs is told in the
    /// project's README. Default: [`Encrypt::BetweenHosts`].
    pub encrypt: Encrypt,
    /// Which host this is: ranks with the same number are on one, and may use the loopback and speak openly to each other.
    /// Default: `None`, a hash of the system's boot and network namespace, so that containers with a network of their own count
    /// as hosts.
    pub host: Option<u64>,
    /// Whether a thread makes progress on this rail while its user computes, so that whoever is above protects what it shares
    /// with it: said in the attributes, and nothing else. Default `false`.
    pub progress_thread: bool,
    /// Number of this link among those of the process. Link `n` connects to link `n` of the peer; each is a rail of its
    /// own.
    pub link: u8,
    /// Which interfaces may be used. Default: all but container bridges.
    pub filter: Filter,
    /// Ports to listen on, tried in order; 0 lets the system choose. Default: `0..=0`.
    pub ports: std::ops::RangeInclusive<u16>,
    /// Where peers are to connect to instead: an address that forwards to this rail. Default: `None`.
    pub advertise: Option<std::net::SocketAddr>,

    /// Longest eager or control frame, in bytes. Default: 64 KiB, and 64 bytes for its header.
    pub eager_limit_bytes: u32,
    /// Longest body that goes with a rendezvous header, in bytes. The receiver sees the header only after what goes with
    /// it, so a long one delays the rest of the message. Default: 8 KiB.
    pub rendezvous_eager_limit_bytes: u32,
    /// Longest frame of a long message, in bytes. Default: 1 MiB.
    pub max_send_size_bytes: u32,
    /// A message's rest below this is not split, in bytes. Default: 64 KiB.
    pub min_fragment_bytes: u32,
    /// Bodies from this size on are sent from where they lie, in bytes. Default: 8 KiB.
    pub in_place_from_bytes: u32,
    /// Megabytes per second of this link, for the shares of striping. Default: 3000.
    pub bandwidth_megabytes_per_second: u32,
    /// Rank by latency, in nanoseconds. Default: 4000.
    pub latency_nanos: u32,

    /// Bodies from this size on, in bytes, leave without being copied by the kernel either, where a link has summed them and the
    /// connection is not encrypted. Default: 64 KiB.
    pub splice_from_bytes: u32,
    /// The pipe by which they leave, in bytes: two descriptors for the rail, from the first such body on. Where it is not to be
    /// had (the process has no descriptors, or its user more pipes than `fs.pipe-user-pages-soft` allows) they are copied. 0:
    /// none. Default: 1 MiB, which is as much as `fs.pipe-max-size` allows everybody unless it is changed.
    pub pipe_bytes: u32,

    /// Staging of frames that wait to leave, in bytes per connection. Touched only as far as it is used. At least twice
    /// the eager limit is made. Default: 256 KiB.
    pub send_staging_bytes: u32,
    /// Staging of control frames, in bytes per connection. Default: 8 KiB.
    pub control_staging_bytes: u32,
    /// Frames that may wait to leave, per connection. Default: 256.
    pub send_queue_frames: u32,
    /// Buffers of the longest frame for all connections of the rail, for bodies that must be packed; one more is kept
    /// for control frames. Default: 4.
    pub large_buffers: u32,
    /// Most that one read takes into staging, in bytes per connection. The staging buffer itself holds the longest frame,
    /// but is not touched beyond this unless a reader waits for all of a frame. Default: 64 KiB.
    pub receive_staging_bytes: u32,
    /// The kernel's send buffer, in bytes; `None` leaves it to the kernel's tuning. Default: `None`.
    pub socket_send_buffer_bytes: Option<u32>,
    /// The kernel's receive buffer, in bytes; `None` leaves it to the kernel's tuning. Default: `None`.
    pub socket_receive_buffer_bytes: Option<u32>,
    /// Congestion control of connections that do not leave this host, by the kernel's name; empty leaves it to the
    /// system, as it always is between hosts. Within a host there is no network to share, and a control that models one
    /// (BBR) sends by fits and starts there. Default: `reno`, which every kernel has and lets everybody use.
    pub host_congestion_control: String,

    /// Idle polls between two looks at epoll while all connections are read directly. Default: 256.
    pub epoll_interval_polls: u32,
    /// The same when there are more connections than are read directly. Default: 4.
    pub epoll_interval_many_polls: u32,
    /// Connections that are read directly, without asking epoll: those that data came from last. Default: 2.
    pub direct_connections: u32,

    /// From first use of a peer to its connection being ready, all attempts at all addresses together. It must allow
    /// for a peer that computes and does not poll. Default: 120 s.
    pub connect_timeout: Duration,
    /// For one address to take the TCP connection. Default: 10 s.
    pub address_timeout: Duration,
    /// For an unknown caller to say a well-formed hello. Default: 5 s.
    pub hello_timeout: Duration,
    /// From the last word of a peer's host to its being given up; zero leaves it to the kernel, whose limit is hours. It
    /// is the kernel of that host that answers, so a peer that computes or is stopped is not given up. While nothing is
    /// on its way to the host the kernel asks by itself, in whole seconds; else the rail looks, when it is polled, whether
    /// anything was acknowledged. Default: 5 s.
    pub dead_host_timeout: Duration,
    /// Inbound connections in the middle of a hello; others wait in the kernel's queue. Default: 128.
    pub pending_inbound: u32,
}

impl Config {
    /// The defaults for rank `rank` of job `job`.
    pub fn new(job: u64, rank: u32, key: JobKey) -> Self {
        Self {
            job,
            rank,
            key,
            encrypt: Encrypt::BetweenHosts,
            host: None,
            progress_thread: false,
            link: 0,
            filter: Filter::default(),
            ports: 0..=0,
            advertise: None,
            eager_limit_bytes: 64 * 1024 + 64,
            rendezvous_eager_limit_bytes: 8 * 1024,
            max_send_size_bytes: 1024 * 1024,
            min_fragment_bytes: 64 * 1024,
            in_place_from_bytes: 8 * 1024,
            bandwidth_megabytes_per_second: 3000,
            latency_nanos: 4000,
            splice_from_bytes: 64 * 1024,
            pipe_bytes: 1024 * 1024,
            send_staging_bytes: 256 * 1024,
            control_staging_bytes: 8 * 1024,
            send_queue_frames: 256,
            large_buffers: 4,
            receive_staging_bytes: 64 * 1024,
            socket_send_buffer_bytes: None,
            socket_receive_buffer_bytes: None,
            host_congestion_control: "reno".into(),
            epoll_interval_polls: 256,
            epoll_interval_many_polls: 4,
            direct_connections: 2,
            connect_timeout: Duration::from_secs(120),
            address_timeout: Duration::from_secs(10),
            hello_timeout: Duration::from_secs(5),
            dead_host_timeout: Duration::from_secs(5),
            pending_inbound: 128,
        }
    }

    /// Memory that a connection takes at most, in bytes: staging of both directions and what keeps account of it. Of the
    /// defaults' 1.5 MiB, 1 MiB is address space until a reader waits for all of a long frame, and the rest is touched as it
    /// is used. The kernel's buffers come on top; unless they are set here, its `tcp_wmem` and `tcp_rmem` bound them.
    ///
    /// ```
    /// use towline_tcp::{Config, JobKey};
    ///
    /// let config = Config::new(1, 0, JobKey::new([0; 32]));
    /// assert!((1 << 20..1600 << 10).contains(&config.bytes_per_connection()));
    /// ```
    pub fn bytes_per_connection(&self) -> u64 {
        let config = self.clone().sane();
        let frames = CONTROL_FRAMES as u64 + u64::from(config.send_queue_frames);
        let out = u64::from(config.control_staging_bytes) + u64::from(config.send_staging_bytes);
        let into = config.receive_staging_bytes.max(config.max_send_size_bytes + PREFIX as u32);
        let account = frames * size_of::<Place>() as u64 + size_of::<Stream>() as u64;
        let reports = IN_PLACE_MAX as u64 * size_of::<(u32, Event)>() as u64;
        let sealed = if config.encrypt == Encrypt::Off { 0 } else { crate::stream::channel::BYTES as u64 };
        out + u64::from(into) + account + reports + sealed
    }

    /// The same with impossible values made possible.
    pub(crate) fn sane(mut self) -> Self {
        self.eager_limit_bytes = self.eager_limit_bytes.clamp(256, crate::framing::MAX_FRAME / 4);
        self.max_send_size_bytes = self.max_send_size_bytes.clamp(self.eager_limit_bytes, crate::framing::MAX_FRAME);
        self.min_fragment_bytes = self.min_fragment_bytes.clamp(1, self.max_send_size_bytes);
        self.rendezvous_eager_limit_bytes = self.rendezvous_eager_limit_bytes.min(self.eager_limit_bytes);
        self.bandwidth_megabytes_per_second = self.bandwidth_megabytes_per_second.max(1);
        self.control_staging_bytes = self.control_staging_bytes.max(1024);
        let least = self.control_staging_bytes.max(2 * self.eager_limit_bytes + 256);
        self.send_staging_bytes = self.send_staging_bytes.max(least);
        self.splice_from_bytes = self.splice_from_bytes.max(1);
        self.pipe_bytes = self.pipe_bytes.min(1 << 31);
        self.send_queue_frames = self.send_queue_frames.max(4);
        self.large_buffers = self.large_buffers.max(1);
        self.receive_staging_bytes = self.receive_staging_bytes.max(1024);
        self.epoll_interval_polls = self.epoll_interval_polls.max(1);
        self.epoll_interval_many_polls = self.epoll_interval_many_polls.max(1);
        self.pending_inbound = self.pending_inbound.max(1);
        self
    }
}
