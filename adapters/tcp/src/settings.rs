//! The table of the settings of tcp, and which of them are possible together.

use towline_net::interfaces::LIST;
use towline_net::listen::{ADVERTISED, PORTS};
use towline_net::sockets;
use towline_settings::{InvalidSetting, Values};

use crate::wire::framing::MAX_FRAME;

/// Bytes of the shortest and of the longest limit for eager frames.
pub(crate) const MIN_EAGER: u32 = 256;
pub(crate) const MAX_EAGER: u32 = MAX_FRAME / 4;
/// Staging memory for control frames, in bytes per connection.
pub(crate) const CONTROL_STAGING: u32 = 8 * 1024;
const EAGER: Values = Values::range(MIN_EAGER, MAX_EAGER);

towline_settings::settings! {
    /// The settings of a job's tcp rails. The program and the environment can change them.
    pub struct Settings, "tcp." {
        include, "TOWLINE_TCP_INCLUDE": String = "", "" in LIST,
            "Interfaces or networks that tcp may use, such as `eth*,10.0.0.0/8`; empty for all";
        exclude, "TOWLINE_TCP_EXCLUDE": String = "", "" in LIST,
            "Interfaces or networks that tcp does not use; empty for container bridges";
        ports, "TOWLINE_TCP_PORTS": String = "0", "" in PORTS,
            "Ports on which tcp listens, such as `5000-5100`; 0 lets the system choose";
        advertise, "TOWLINE_TCP_ADVERTISE": String = "", "" in ADVERTISED,
            "Address and port of a forwarder to which other ranks connect instead; link n is reached at the n-th port after it; empty for none";
        eager_limit_bytes, "TOWLINE_TCP_EAGER_LIMIT_BYTES": u32 = 65_600u32, "B" in EAGER,
            "Longest eager or control frame of tcp, with its header";
        rendezvous_bytes, "TOWLINE_TCP_RENDEZVOUS_BYTES": u32 = 8_192u32, "B" in Values::range(0, MAX_EAGER),
            "Bytes of a long message that are sent with its rendezvous header, before the receive is known";
        max_send_bytes, "TOWLINE_TCP_MAX_SEND_BYTES": u32 = 1_048_576u32, "B" in Values::range(MIN_EAGER, MAX_FRAME),
            "Longest fragment of a long message, with its header";
        in_place_bytes, "TOWLINE_TCP_IN_PLACE_BYTES": u32 = 8_192u32, "B",
            "Bodies of at least this length are sent from the user's memory";
        splice_bytes, "TOWLINE_TCP_SPLICE_BYTES": u32 = 65_536u32, "B" in Values::at_least(1),
            "Bodies of at least this length are sent without a copy in the kernel, through a pipe, where TOWLINE_CHECKSUM is on and the connection is not encrypted";
        pipe_bytes, "TOWLINE_TCP_PIPE_BYTES": u32 = 1_048_576u32, "B" in Values::range(0, 1 << 30),
            "Size of the pipe for TOWLINE_TCP_SPLICE_BYTES, one for each link, with two descriptors; 0 for none";
        send_staging_bytes, "TOWLINE_TCP_SEND_STAGING_BYTES": u32 = 262_144u32, "B" in Values::range(CONTROL_STAGING, 1 << 30),
            "Staging memory for frames that wait to be sent, per connection";
        socket_bytes, "TOWLINE_TCP_SOCKET_BYTES": u32 = 0u32, "B" in sockets::BUFFER.or_zero(),
            "The kernel's send and receive buffers of each connection; 0 leaves them to the kernel";
        host_congestion, "TOWLINE_TCP_HOST_CONGESTION": String = "reno", "",
            "Congestion control of connections within a host, by its name in the kernel; empty leaves it to the system";
        epoll_polls, "TOWLINE_TCP_EPOLL_POLLS": u32 = 64u32, "" in Values::at_least(1),
            "Idle polls of tcp between two calls of epoll";
        bandwidth_mb_s, "TOWLINE_TCP_BANDWIDTH_MB_S": u32 = 3000u32, "MB/s" in Values::at_least(1),
            "Bandwidth of a tcp link, which decides its share in striping";
        connect_timeout_ms, "TOWLINE_TCP_CONNECT_TIMEOUT_MS": u32 = 120_000u32, "ms" in Values::at_least(1),
            "Time limit from the first message to a peer to its connection; a peer that computes answers late";
    }
}

/// Bytes of the least staging memory for frames of up to `eager` bytes.
pub(crate) const fn least_staging(eager: u32) -> u32 {
    2 * eager + 256
}

impl Settings {
    /// Checks the settings that restrict each other. A setting with its default value adapts to the others.
    ///
    /// # Errors
    /// The first setting that cannot be kept beside the others.
    ///
    /// ```
    /// let mut settings = towline_tcp::Settings::default();
    /// settings.eager_limit_bytes = 4096; // fewer bytes are sent with a rendezvous header, too
    /// settings.check()?;
    /// settings.rendezvous_bytes = 5000;
    /// let why = settings.check().unwrap_err().to_string();
    /// assert!(why.starts_with("TOWLINE_TCP_RENDEZVOUS_BYTES: `5000` is above TOWLINE_TCP_EAGER_LIMIT_BYTES"), "{why}");
    /// # Ok::<(), towline_settings::InvalidSetting>(())
    /// ```
    pub fn check(&self) -> Result<(), InvalidSetting> {
        let (default, eager) = (Self::default(), self.eager_limit_bytes);
        let other = format!("TOWLINE_TCP_EAGER_LIMIT_BYTES, {eager}");
        let (send, rendezvous, staging) = (self.max_send_bytes, self.rendezvous_bytes, self.send_staging_bytes);
        if send < eager && send != default.max_send_bytes {
            let possible = format!("{eager} to {MAX_FRAME} B, or less with a lower eager limit");
            return Err(InvalidSetting::new("TOWLINE_TCP_MAX_SEND_BYTES", send, format!("is below {other}"), possible));
        }
        if rendezvous > eager && rendezvous != default.rendezvous_bytes {
            let possible = format!("0 to {eager} B, or more with a higher eager limit");
            let why = format!("is above {other}");
            return Err(InvalidSetting::new("TOWLINE_TCP_RENDEZVOUS_BYTES", rendezvous, why, possible));
        }
        let least = least_staging(eager);
        if staging < least && staging != default.send_staging_bytes {
            let possible = format!("{least} to {} B, or less with a lower eager limit", 1 << 30);
            let why = format!("has no room for two frames of {other}");
            return Err(InvalidSetting::new("TOWLINE_TCP_SEND_STAGING_BYTES", staging, why, possible));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_adapts_and_a_given_value_is_kept_or_refused() {
        let of = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.check().map_err(|why| why.variable)
        };
        assert_eq!(of(|_| {}), Ok(()));
        assert_eq!(of(|it| it.eager_limit_bytes = MIN_EAGER), Ok(()));
        assert_eq!(of(|it| it.eager_limit_bytes = MAX_EAGER), Ok(()));
        assert_eq!(of(|it| it.max_send_bytes = 4096), Err("TOWLINE_TCP_MAX_SEND_BYTES"));
        assert_eq!(of(|it| (it.max_send_bytes, it.eager_limit_bytes) = (4096, 4096)), Ok(()));
        assert_eq!(of(|it| it.rendezvous_bytes = 65_601), Err("TOWLINE_TCP_RENDEZVOUS_BYTES"));
        assert_eq!(of(|it| it.send_staging_bytes = 131_455), Err("TOWLINE_TCP_SEND_STAGING_BYTES"));
        assert_eq!(of(|it| it.send_staging_bytes = 131_456), Ok(()));
    }
}
