//! The table of the settings of tcp.

towline_settings::settings! {
    /// The settings of a job's tcp rails. The program and the environment can change them.
    pub struct Settings, "tcp." {
        include, "TOWLINE_TCP_INCLUDE": String = "", "",
            "Interfaces or networks that tcp may use, such as `eth*,10.0.0.0/8`; empty for all";
        exclude, "TOWLINE_TCP_EXCLUDE": String = "", "",
            "Interfaces or networks that tcp does not use; empty for container bridges";
        ports, "TOWLINE_TCP_PORTS": String = "0", "",
            "Ports on which tcp listens, such as `5000-5100`; 0 lets the system choose";
        advertise, "TOWLINE_TCP_ADVERTISE": String = "", "",
            "Address and port of a forwarder to which other ranks connect instead; link n is reached at the n-th port after it; empty for none";
        eager_limit_bytes, "TOWLINE_TCP_EAGER_LIMIT_BYTES": u32 = 65_600u32, "B",
            "Longest eager or control frame of tcp, with its header";
        rendezvous_bytes, "TOWLINE_TCP_RENDEZVOUS_BYTES": u32 = 8_192u32, "B",
            "Bytes of a long message that are sent with its rendezvous header, before the receive is known";
        max_send_bytes, "TOWLINE_TCP_MAX_SEND_BYTES": u32 = 1_048_576u32, "B",
            "Longest fragment of a long message, with its header";
        in_place_bytes, "TOWLINE_TCP_IN_PLACE_BYTES": u32 = 8_192u32, "B",
            "Bodies of at least this length are sent from the user's memory";
        splice_bytes, "TOWLINE_TCP_SPLICE_BYTES": u32 = 65_536u32, "B",
            "Bodies of at least this length are sent without a copy in the kernel, through a pipe, where TOWLINE_CHECKSUM is on and the connection is not encrypted";
        pipe_bytes, "TOWLINE_TCP_PIPE_BYTES": u32 = 1_048_576u32, "B",
            "Size of the pipe for TOWLINE_TCP_SPLICE_BYTES, one for each link, with two descriptors; 0 for none";
        send_staging_bytes, "TOWLINE_TCP_SEND_STAGING_BYTES": u32 = 262_144u32, "B",
            "Staging memory for frames that wait to be sent, per connection";
        socket_bytes, "TOWLINE_TCP_SOCKET_BYTES": u32 = 0u32, "B",
            "The kernel's send and receive buffers of each connection; 0 leaves them to the kernel";
        host_congestion, "TOWLINE_TCP_HOST_CONGESTION": String = "reno", "",
            "Congestion control of connections within a host, by its name in the kernel; empty leaves it to the system";
        epoll_polls, "TOWLINE_TCP_EPOLL_POLLS": u32 = 64u32, "",
            "Idle polls of tcp between two calls of epoll";
        bandwidth_mb_s, "TOWLINE_TCP_BANDWIDTH_MB_S": u32 = 3000u32, "MB/s",
            "Bandwidth of a tcp link, which decides its share in striping";
        connect_timeout_ms, "TOWLINE_TCP_CONNECT_TIMEOUT_MS": u32 = 120_000u32, "ms",
            "Time limit from the first message to a peer to its connection; a peer that computes answers late";
    }
}
