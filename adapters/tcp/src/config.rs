//! The configuration of a rail.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use towline_net::interfaces::Filter;
use towline_net::{Encrypt, JobKey, listen};
use towline_settings::InvalidSetting;

use crate::Settings;
use crate::settings::{CONTROL_STAGING, MAX_EAGER, MIN_EAGER, least_staging};
use crate::wire::framing::MAX_FRAME;

/// The configuration of a [`Rail`](crate::Rail). [`Config::new`] gives the defaults, [`apply`](Self::apply) takes over the
/// [`Settings`] of a job.
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
    /// The job of this process. Not secret.
    pub job: u64,
    /// Rank of this process in the job. It identifies this process to its peers.
    pub rank: u32,
    /// The job's secret.
    pub key: JobKey,
    /// When connections are encrypted; the same for all ranks. A peer whose setting gives another result is refused. Two ranks
    /// are on one host if they have the same [`host`](Self::host), even if a forwarder is between them. The manual's page
    /// on measuring gives the cost. Default: [`Encrypt::BetweenHosts`].
    pub encrypt: Encrypt,
    /// A number that identifies this host. Ranks with the same number are on one host, may use the loopback interface and need
    /// not encrypt their traffic. Default: `None`, a hash of the system's boot id and network namespace, so that containers
    /// with a network of their own count as hosts.
    pub host: Option<u64>,
    /// Whether a thread makes progress on this rail while its user computes, so that the layers above protect the data that
    /// they share with that thread. The only effect is that the rail's attributes contain it. Default: `false`.
    pub progress_thread: bool,
    /// This link's number among the links of the process. Link `n` connects to link `n` of the peer; each is a rail of its own.
    /// Default: 0.
    pub link: u8,
    /// The interfaces that may be used. Default: all but container bridges.
    pub filter: Filter,
    /// Ports to listen on, tried in order; 0 lets the system choose. Default: `0..=0`.
    pub ports: RangeInclusive<u16>,
    /// Address of a forwarder that passes connections on to this rail, and to which peers connect instead. Default: `None`.
    pub advertise: Option<SocketAddr>,

    /// Longest eager or control frame, in bytes. Default: 64 KiB, and 64 bytes for its header.
    pub eager_limit_bytes: u32,
    /// Longest body that is sent with a rendezvous header, in bytes. The receiver sees the header only after this body, so a long
    /// body delays the rest of the message. Default: 8 KiB.
    pub rendezvous_eager_limit_bytes: u32,
    /// Longest frame of a long message, in bytes. Default: 1 MiB.
    pub max_send_size_bytes: u32,
    /// The rest of a message is not split if it is shorter than this many bytes. Default: 64 KiB.
    pub min_fragment_bytes: u32,
    /// Bodies of at least this length, in bytes, are sent from the user's memory. Default: 8 KiB.
    pub in_place_from_bytes: u32,
    /// Bandwidth of this link, in megabytes per second, for the shares of striping. Default: 3000.
    pub bandwidth_megabytes_per_second: u32,
    /// Latency, in nanoseconds. The rail with the lowest latency is preferred. Default: 4000.
    pub latency_nanos: u32,

    /// Bodies of at least this length, in bytes, are sent without a copy in the kernel too, where a link has computed their
    /// checksum and the connection is not encrypted. Default: 64 KiB.
    pub splice_from_bytes: u32,
    /// Size of the pipe through which such bodies are sent, in bytes. The pipe takes two descriptors of the rail, from the first
    /// such body on. If the system refuses it (the process has no descriptors, or its user has more pipes than
    /// `fs.pipe-user-pages-soft` allows), the bodies are copied. 0: no pipe. Default: 1 MiB, the default of `fs.pipe-max-size`,
    /// the system's limit for users.
    pub pipe_bytes: u32,

    /// Staging memory for frames that wait to be sent, in bytes per connection. Its pages are touched as they are used. The
    /// rail takes at least twice the eager limit. Default: 256 KiB.
    pub send_staging_bytes: u32,
    /// Staging memory for control frames, in bytes per connection. Default: 8 KiB.
    pub control_staging_bytes: u32,
    /// Maximum number of frames that wait to be sent, per connection. Default: 256.
    pub send_queue_frames: u32,
    /// Buffers of the longest frame for bodies that must be packed, for all connections of the rail. One more is reserved for
    /// control frames. Default: 4.
    pub large_buffers: u32,
    /// Maximum number of bytes that one read takes into staging, per connection. The staging buffer holds the longest frame, but
    /// its pages beyond this length are not touched unless a reader waits for a complete frame. Default: 64 KiB.
    pub receive_staging_bytes: u32,
    /// The kernel's send buffer of a connection, in bytes; `None` leaves it to the kernel. Default: `None`.
    pub socket_send_buffer_bytes: Option<u32>,
    /// The kernel's receive buffer of a connection, in bytes; `None` leaves it to the kernel. Default: `None`.
    pub socket_receive_buffer_bytes: Option<u32>,
    /// Congestion control of connections within this host, by its name in the kernel; empty leaves it to the system, as it
    /// always is between hosts. Within a host there is no network to share, and a control that models one (BBR) sends in bursts
    /// there. Default: `reno`, which every kernel has and every user may choose.
    pub host_congestion_control: String,

    /// Idle polls between two calls of epoll while all connections are read directly. Default: 64.
    pub epoll_interval_polls: u32,
    /// Idle polls between two calls of epoll while there are more connections than are read directly. Default: 4.
    pub epoll_interval_many_polls: u32,
    /// Connections that are read directly, without a report of epoll: those from which data came last. Default: 2.
    pub direct_connections: u32,

    /// Time limit from the first use of a peer to its connection, for all attempts at all addresses together. It must allow for a
    /// peer that computes and does not poll. Default: 120 s.
    pub connect_timeout: Duration,
    /// Time limit for the TCP connection to one address. Default: 10 s.
    pub address_timeout: Duration,
    /// Time limit for an unknown caller to send a well-formed hello. Default: 5 s.
    pub hello_timeout: Duration,
    /// Time from the last answer of a peer's host to the loss of the peer; zero leaves it to the kernel, whose limit is hours.
    /// The kernel of that host answers, so a peer that computes or is stopped is not lost. While no data is in flight to the
    /// host, the kernel probes it, in whole seconds. While data is in flight, the rail checks at polls whether anything was
    /// acknowledged. Default: 5 s.
    pub dead_host_timeout: Duration,
    /// Maximum number of inbound connections in the middle of a hello; others wait in the kernel's queue. Default: 128.
    pub pending_inbound: u32,
}

impl Config {
    /// The defaults for rank `rank` of job `job`. Where a [`Settings`] has a default, it is the same.
    pub fn new(job: u64, rank: u32, key: JobKey) -> Self {
        let settings = Settings::default();
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
            eager_limit_bytes: settings.eager_limit_bytes,
            rendezvous_eager_limit_bytes: settings.rendezvous_bytes,
            max_send_size_bytes: settings.max_send_bytes,
            min_fragment_bytes: 64 * 1024,
            in_place_from_bytes: settings.in_place_bytes,
            bandwidth_megabytes_per_second: settings.bandwidth_mb_s,
            latency_nanos: 4000,
            splice_from_bytes: settings.splice_bytes,
            pipe_bytes: settings.pipe_bytes,
            send_staging_bytes: settings.send_staging_bytes,
            control_staging_bytes: CONTROL_STAGING,
            send_queue_frames: 256,
            large_buffers: 4,
            receive_staging_bytes: 64 * 1024,
            socket_send_buffer_bytes: None,
            socket_receive_buffer_bytes: None,
            host_congestion_control: settings.host_congestion,
            epoll_interval_polls: settings.epoll_polls,
            epoll_interval_many_polls: 4,
            direct_connections: 2,
            connect_timeout: Duration::from_millis(settings.connect_timeout_ms.into()),
            address_timeout: Duration::from_secs(10),
            hello_timeout: Duration::from_secs(5),
            dead_host_timeout: Duration::from_secs(5),
            pending_inbound: 128,
        }
    }

    /// Takes over the settings of a job. [`link`](Self::link) must be set before: the published port depends on it.
    ///
    /// # Errors
    /// The first setting whose value cannot be understood. The others are taken over, except addresses and ports.
    ///
    /// ```
    /// use towline_tcp::{Config, JobKey, Settings};
    ///
    /// let mut settings = Settings::default();
    /// settings.ports = "5000-5100".into();
    /// let mut config = Config::new(1, 0, JobKey::new([0; 32]));
    /// config.apply(&settings)?;
    /// assert_eq!(config.ports, 5000..=5100);
    /// # Ok::<(), towline_settings::InvalidSetting>(())
    /// ```
    pub fn apply(&mut self, settings: &Settings) -> Result<(), InvalidSetting> {
        let buffer = (settings.socket_bytes != 0).then_some(settings.socket_bytes);
        self.filter = Filter::from_lists(&settings.include, &settings.exclude);
        self.eager_limit_bytes = settings.eager_limit_bytes;
        self.rendezvous_eager_limit_bytes = settings.rendezvous_bytes;
        self.max_send_size_bytes = settings.max_send_bytes;
        self.in_place_from_bytes = settings.in_place_bytes;
        self.splice_from_bytes = settings.splice_bytes;
        self.pipe_bytes = settings.pipe_bytes;
        self.send_staging_bytes = settings.send_staging_bytes;
        (self.socket_send_buffer_bytes, self.socket_receive_buffer_bytes) = (buffer, buffer);
        self.host_congestion_control.clone_from(&settings.host_congestion);
        self.epoll_interval_polls = settings.epoll_polls;
        self.bandwidth_megabytes_per_second = settings.bandwidth_mb_s;
        self.connect_timeout = Duration::from_millis(settings.connect_timeout_ms.into());
        self.ports = listen::ports("TOWLINE_TCP_PORTS", &settings.ports)?;
        self.advertise = listen::advertised("TOWLINE_TCP_ADVERTISE", &settings.advertise, self.link)?;
        Ok(())
    }

    /// The same configuration with each value clamped to its range.
    pub(crate) fn clamped(mut self) -> Self {
        self.eager_limit_bytes = self.eager_limit_bytes.clamp(MIN_EAGER, MAX_EAGER);
        self.max_send_size_bytes = self.max_send_size_bytes.clamp(self.eager_limit_bytes, MAX_FRAME);
        self.min_fragment_bytes = self.min_fragment_bytes.clamp(1, self.max_send_size_bytes);
        self.rendezvous_eager_limit_bytes = self.rendezvous_eager_limit_bytes.min(self.eager_limit_bytes);
        self.bandwidth_megabytes_per_second = self.bandwidth_megabytes_per_second.max(1);
        self.control_staging_bytes = self.control_staging_bytes.max(1024);
        let least = self.control_staging_bytes.max(least_staging(self.eager_limit_bytes));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Formatted text does not contain the secret.
    #[test]
    fn the_key_is_not_shown() {
        let config = Config::new(1, 2, JobKey::new([0xAB; 32]));
        let shown = format!("{config:?}");
        assert!(!shown.contains("171") && !shown.to_lowercase().contains("abab"), "{shown}");
    }

    #[test]
    fn defaults_are_those_of_the_settings() {
        let mut config = Config::new(1, 2, JobKey::new([1; 32]));
        let shown = format!("{config:?}");
        config.apply(&Settings::default()).unwrap();
        assert_eq!(format!("{config:?}"), shown);
    }
}
