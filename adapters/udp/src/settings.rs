//! The table of the settings of udp, and which of them are possible on this host.

use towline_net::interfaces::LIST;
use towline_net::listen::{ADVERTISED, PORTS};
use towline_net::sockets;
use towline_settings::{InvalidSetting, Values};

/// Longest datagram over IPv4, in bytes. The longest over IPv6 has a few more.
pub(crate) const MAX_DATAGRAM: u32 = 65_507;
/// Shortest limit for datagrams, in bytes.
pub(crate) const SHORTEST_DATAGRAM: u32 = 256;

towline_settings::settings! {
    /// The settings of a job's udp rails. The program and the environment can change them.
    pub struct Settings, "udp." {
        include, "TOWLINE_UDP_INCLUDE": String = "", "" in LIST,
            "Interfaces or networks that udp may use, such as `eth*,10.0.0.0/8`; empty for all. Each link uses one of them: the loopback interface where all ranks are on one host";
        exclude, "TOWLINE_UDP_EXCLUDE": String = "", "" in LIST,
            "Interfaces or networks that udp does not use; empty for container bridges";
        ports, "TOWLINE_UDP_PORTS": String = "0", "" in PORTS,
            "Ports that udp uses, such as `5000-5100`; 0 lets the system choose";
        advertise, "TOWLINE_UDP_ADVERTISE": String = "", "" in ADVERTISED,
            "Address and port of a forwarder to which other ranks send instead; link n is reached at the n-th port after it; empty for none";
        datagram_bytes, "TOWLINE_UDP_DATAGRAM_BYTES": u32 = 0u32, "B" in Values::range(SHORTEST_DATAGRAM, MAX_DATAGRAM).or_zero(),
            "Longest datagram; 0 for what passes the interface unfragmented, at most 16 KiB";
        sign, "TOWLINE_UDP_SIGN": String = "network", "" in Values::OneOf(&["network", "always", "never"]),
            "When each datagram has a MAC, so that nobody on the path can change it: `always`, `never`, or `network` for all but datagrams within this host";
        segmentation, "TOWLINE_UDP_SEGMENTATION": bool = true, "",
            "Whether the kernel segments and coalesces datagrams, where it can";
        pacing_mb_s, "TOWLINE_UDP_PACING_MB_S": u32 = 0u32, "MB/s",
            "Highest rate at which a udp link sends; 0 for no limit";
        bandwidth_mb_s, "TOWLINE_UDP_BANDWIDTH_MB_S": u32 = 2000u32, "MB/s" in Values::at_least(1),
            "Bandwidth of a udp link, which decides its share in striping";
        send_buffer_bytes, "TOWLINE_UDP_SEND_BUFFER_BYTES": u32 = 4_194_304u32, "B" in sockets::BUFFER,
            "The kernel's send buffer of each socket; the system limits it (net.core.wmem_max)";
        receive_buffer_bytes, "TOWLINE_UDP_RECEIVE_BUFFER_BYTES": u32 = 4_194_304u32, "B" in sockets::BUFFER,
            "The kernel's receive buffer of each socket; datagrams that arrive while it is full are lost and sent again; the system limits it (net.core.rmem_max)";
        connect_timeout_ms, "TOWLINE_UDP_CONNECT_TIMEOUT_MS": u32 = 120_000u32, "ms" in Values::at_least(1),
            "Time limit from the first message to a peer to its answer; a peer that computes answers late";
    }
}

impl Settings {
    /// Checks the settings that the system of this host restricts.
    ///
    /// # Errors
    /// The first setting that the system does not allow. A setting with its default value is not checked.
    pub fn check_host(&self) -> Result<(), InvalidSetting> {
        let default = Self::default();
        let given = |value: u32, default: u32| (value != default).then_some(value);
        sockets::check_buffers(
            ["TOWLINE_UDP_SEND_BUFFER_BYTES", "TOWLINE_UDP_RECEIVE_BUFFER_BYTES"],
            [
                given(self.send_buffer_bytes, default.send_buffer_bytes),
                given(self.receive_buffer_bytes, default.receive_buffer_bytes),
            ],
        )
    }
}
