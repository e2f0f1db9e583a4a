//! The table of the settings of udp.

towline_settings::settings! {
    /// The settings of a job's udp rails. The program and the environment can change them.
    pub struct Settings, "udp." {
        include, "TOWLINE_UDP_INCLUDE": String = "", "",
            "Interfaces or networks that udp may use, such as `eth*,10.0.0.0/8`; empty for all. Each link uses one of them: the loopback interface where all ranks are on one host";
        exclude, "TOWLINE_UDP_EXCLUDE": String = "", "",
            "Interfaces or networks that udp does not use; empty for container bridges";
        ports, "TOWLINE_UDP_PORTS": String = "0", "",
            "Ports that udp uses, such as `5000-5100`; 0 lets the system choose";
        advertise, "TOWLINE_UDP_ADVERTISE": String = "", "",
            "Address and port of a forwarder to which other ranks send instead; link n is reached at the n-th port after it; empty for none";
        datagram_bytes, "TOWLINE_UDP_DATAGRAM_BYTES": u32 = 0u32, "B",
            "Longest datagram; 0 for what passes the interface unfragmented, at most 16 KiB";
        sign, "TOWLINE_UDP_SIGN": String = "network", "",
            "When each datagram has a MAC, so that nobody on the path can change it: `always`, `never`, or `network` for all but datagrams within this host";
        segmentation, "TOWLINE_UDP_SEGMENTATION": bool = true, "",
            "Whether the kernel segments and coalesces datagrams, where it can";
        pacing_mb_s, "TOWLINE_UDP_PACING_MB_S": u32 = 0u32, "MB/s",
            "Highest rate at which a udp link sends; 0 for no limit";
        bandwidth_mb_s, "TOWLINE_UDP_BANDWIDTH_MB_S": u32 = 2000u32, "MB/s",
            "Bandwidth of a udp link, which decides its share in striping";
        send_buffer_bytes, "TOWLINE_UDP_SEND_BUFFER_BYTES": u32 = 4_194_304u32, "B",
            "The kernel's send buffer of each socket; the system limits it (net.core.wmem_max)";
        receive_buffer_bytes, "TOWLINE_UDP_RECEIVE_BUFFER_BYTES": u32 = 4_194_304u32, "B",
            "The kernel's receive buffer of each socket; datagrams that arrive while it is full are lost and sent again; the system limits it (net.core.rmem_max)";
        connect_timeout_ms, "TOWLINE_UDP_CONNECT_TIMEOUT_MS": u32 = 120_000u32, "ms",
            "Time limit from the first message to a peer to its answer; a peer that computes answers late";
    }
}
