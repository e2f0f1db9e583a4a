//! The configuration of a rail.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use towline_net::interfaces::Filter;
use towline_net::{Encrypt, JobKey, listen};
use towline_settings::InvalidSetting;

use crate::settings::{SHORTEST_DATAGRAM, Settings};

pub(crate) use crate::settings::MAX_DATAGRAM;

/// A datagram of this length passes every path unfragmented (RFC 8200: 1280 bytes with headers).
pub(crate) const MIN_DATAGRAM: u32 = 1232;
/// Longest datagram where no length is set: several of them are sent by one call, and each is a small part of the receive buffer.
const DEFAULT_DATAGRAM: u32 = 16_352;
/// Datagrams under one key after which new keys are agreed on. AES-GCM allows several times as many (RFC 8446).
const RENEW: u64 = 1 << 22;
/// Staging for control frames beside that for others, in datagrams of the longest kind.
const CONTROL_FRAMES: u32 = 4;

/// The configuration of a [`Rail`](crate::Rail). [`Config::new`] gives the defaults, [`apply`](Self::apply) takes over the
/// [`Settings`] of a job.
///
/// ```
/// use towline_udp::{Config, JobKey};
///
/// let mut config = Config::new(0x70B, 3, JobKey::new([7; 32]));
/// config.filter.include = vec!["eth*".into()];
/// assert_eq!(config.sign, None);
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// The job of this process. Not secret.
    pub job: u64,
    /// Rank of this process in the job. It identifies this process to its peers.
    pub rank: u32,
    /// The job's secret.
    pub key: JobKey,
    /// When datagrams are encrypted; the same for all ranks. A peer whose setting gives another result is refused. Encrypted
    /// datagrams have no MAC in addition. Default: [`Encrypt::BetweenHosts`].
    pub encrypt: Encrypt,
    /// Encrypted datagrams to a peer after which new keys are agreed on; at most 2^22. Default: 2^22.
    pub renew_after_datagrams: u64,
    /// This link's number among the links of the process. Link `n` connects to link `n` of the peer; each is a rail of its own,
    /// and uses another interface where there are several. Default: 0.
    pub link: u8,
    /// Whether a thread makes progress on this rail while its user computes. The only effect is that the rail's attributes
    /// contain it. Default: `false`.
    pub progress_thread: bool,
    /// The interfaces that may be used. Default: all but container bridges.
    pub filter: Filter,
    /// Prefers the loopback interface to any other: for jobs within one host. Default: `false`.
    pub within_host: bool,
    /// Ports to use, tried in order; 0 lets the system choose. Default: `0..=0`.
    pub ports: RangeInclusive<u16>,
    /// Address of a forwarder that passes datagrams on to this rail, and to which peers send instead. Default: `None`.
    pub advertise: Option<SocketAddr>,

    /// Longest datagram, in bytes. 0 means the longest one that passes the interface unfragmented, at most 16 KiB. Default: 0.
    pub datagram_bytes: u32,
    /// Whether each datagram has a MAC. `None`: it has one unless it stays on this host. If either end wants MACs, both use them.
    /// Default: `None`.
    pub sign: Option<bool>,
    /// Whether the kernel segments and coalesces datagrams, where it can. Default: `true`.
    pub segmentation: bool,
    /// Highest rate at which the rail sends, in megabytes per second; 0 for no limit. Default: 0.
    pub pacing_megabytes_per_second: u32,
    /// Bandwidth of this link, in megabytes per second, for the shares of striping. Default: 2000.
    pub bandwidth_megabytes_per_second: u32,
    /// Latency, in nanoseconds. The rail with the lowest latency is preferred. Default: 5000.
    pub latency_nanos: u32,

    /// Staging memory for frames that wait to be sent, in bytes for the rail. Default: 128 KiB.
    pub send_staging_bytes: u32,
    /// Maximum number of frames that wait to be sent, for the rail. Default: 512.
    pub send_queue_frames: u32,
    /// Short frames between two polls that are sent at once, each by a call of its own; further ones are sent together.
    /// Default: 2.
    pub frames_at_once: u32,
    /// Maximum number of frames that the reader may hold. Default: 32.
    pub frames_kept: u32,
    /// The kernel's send buffer, in bytes. The system's `net.core.wmem_max` limits it. Default: 4 MiB.
    pub socket_send_buffer_bytes: u32,
    /// The kernel's receive buffer, in bytes. Datagrams that arrive while it is full are lost. The system's `net.core.rmem_max`
    /// limits it. Default: 4 MiB.
    pub socket_receive_buffer_bytes: u32,
    /// Polls between two reads of the socket, once nothing has arrived for a while. Default: 4.
    pub idle_interval_polls: u32,

    /// Time limit from the first use of a peer to its session. It must allow for a peer that computes and does not poll.
    /// Default: 120 s.
    pub connect_timeout: Duration,
    /// Longest time between two hellos to a peer that does not answer. Default: 50 ms.
    pub hello_interval: Duration,
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
            renew_after_datagrams: RENEW,
            link: 0,
            progress_thread: false,
            filter: Filter::default(),
            within_host: false,
            ports: 0..=0,
            advertise: None,
            datagram_bytes: settings.datagram_bytes,
            sign: None,
            segmentation: settings.segmentation,
            pacing_megabytes_per_second: settings.pacing_mb_s,
            bandwidth_megabytes_per_second: settings.bandwidth_mb_s,
            latency_nanos: 5000,
            send_staging_bytes: 128 * 1024,
            send_queue_frames: 512,
            frames_at_once: 2,
            frames_kept: 32,
            socket_send_buffer_bytes: settings.send_buffer_bytes,
            socket_receive_buffer_bytes: settings.receive_buffer_bytes,
            idle_interval_polls: 4,
            connect_timeout: Duration::from_millis(settings.connect_timeout_ms.into()),
            hello_interval: Duration::from_millis(50),
        }
    }

    /// Takes over the settings of a job. [`link`](Self::link) must be set before: the published port depends on it.
    ///
    /// # Errors
    /// The first setting whose value cannot be understood.
    ///
    /// ```
    /// use towline_udp::{Config, JobKey, Settings};
    ///
    /// let mut settings = Settings::default();
    /// settings.sign = "always".into();
    /// let mut config = Config::new(1, 0, JobKey::new([0; 32]));
    /// config.apply(&settings)?;
    /// assert_eq!(config.sign, Some(true));
    /// # Ok::<(), towline_settings::InvalidSetting>(())
    /// ```
    pub fn apply(&mut self, settings: &Settings) -> Result<(), InvalidSetting> {
        self.filter = Filter::from_lists(&settings.include, &settings.exclude);
        self.ports = listen::ports("TOWLINE_UDP_PORTS", &settings.ports)?;
        self.advertise = listen::advertised("TOWLINE_UDP_ADVERTISE", &settings.advertise, self.link)?;
        self.sign = match settings.sign.as_str() {
            "network" => None,
            "always" => Some(true),
            "never" => Some(false),
            other => {
                let why = "is not a known value";
                return Err(InvalidSetting::new("TOWLINE_UDP_SIGN", other, why, "network, always or never"));
            }
        };
        self.datagram_bytes = settings.datagram_bytes;
        self.segmentation = settings.segmentation;
        self.pacing_megabytes_per_second = settings.pacing_mb_s;
        self.bandwidth_megabytes_per_second = settings.bandwidth_mb_s;
        self.socket_send_buffer_bytes = settings.send_buffer_bytes;
        self.socket_receive_buffer_bytes = settings.receive_buffer_bytes;
        self.connect_timeout = Duration::from_millis(settings.connect_timeout_ms.into());
        Ok(())
    }

    /// The same configuration with each value clamped to its range.
    pub(crate) fn clamped(mut self) -> Self {
        if self.datagram_bytes != 0 {
            self.datagram_bytes = self.datagram_bytes.clamp(SHORTEST_DATAGRAM, MAX_DATAGRAM);
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

    /// Longest datagram, in bytes, on an interface with this MTU.
    ///
    /// # Errors
    /// The configured length is too long for the interface.
    pub(crate) fn max_datagram(&self, mtu: u32, v4: bool) -> Result<u32, InvalidSetting> {
        let headers = if v4 { 28 } else { 48 };
        let unfragmented = mtu.saturating_sub(headers).clamp(MIN_DATAGRAM.min(mtu), MAX_DATAGRAM);
        match self.datagram_bytes {
            0 => Ok(unfragmented.min(DEFAULT_DATAGRAM)),
            bytes if bytes <= unfragmented => Ok(bytes),
            bytes => {
                let why = format!("does not pass the interface unfragmented, whose MTU is {mtu}");
                let possible = format!("0, or {SHORTEST_DATAGRAM} to {unfragmented} B, or more on another interface");
                Err(InvalidSetting::new("TOWLINE_UDP_DATAGRAM_BYTES", bytes, why, possible))
            }
        }
    }

    /// Bytes of staging for datagrams of up to `datagram` bytes: for bulk and eager frames, and for control frames only.
    pub(crate) fn staging(&self, datagram: u32) -> usize {
        self.send_staging_bytes.max(2 * datagram) as usize + Self::control_staging(datagram)
    }

    /// Bytes of staging for control frames only.
    pub(crate) const fn control_staging(datagram: u32) -> usize {
        (CONTROL_FRAMES * datagram) as usize
    }

    /// Receive buffers: one for each frame that may be held, and some more to receive into meanwhile.
    pub(crate) const fn receive_buffers(&self) -> u32 {
        self.frames_kept + 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_settings() {
        let mut config = Config::new(1, 2, JobKey::new([1; 32]));
        let shown = format!("{config:?}");
        config.apply(&Settings::default()).unwrap();
        assert_eq!(format!("{config:?}"), shown);
        let wrong = Settings { sign: "sometimes".into(), ..Settings::default() };
        assert!(config.apply(&wrong).is_err_and(|why| why.to_string().contains("TOWLINE_UDP_SIGN: `sometimes`")));
    }
}
