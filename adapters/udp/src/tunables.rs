//! Every setting in words, for `towline info`.

use std::fmt::Display;

use towline_tcp::Tunable;

use crate::Config;

impl Config {
    /// Every setting with its value, unit and meaning.
    ///
    /// ```
    /// let all = towline_udp::Config::new(1, 0, towline_net::JobKey::new([0; 32])).tunables();
    /// assert!(all.iter().any(|it| it.name == "socket_receive_buffer_bytes" && it.value == "4194304" && it.unit == "B"));
    /// ```
    pub fn tunables(&self) -> Vec<Tunable> {
        let one = |name, value: &dyn Display, unit, help| Tunable { name, value: value.to_string(), unit, help };
        let advertise = self.advertise.map_or_else(String::new, |address| address.to_string());
        let sign = self.sign.map_or("beyond this host", |sign| if sign { "always" } else { "never" });
        vec![
            one("encrypt", &self.encrypt, "", "when datagrams are encrypted: off, between-hosts, always"),
            one(
                "renew_after_datagrams",
                &self.renew_after_datagrams,
                "",
                "encrypted datagrams to a peer under the same keys",
            ),
            one("filter.include", &self.filter.include.join(","), "", "interfaces that alone are used; empty: all"),
            one("within_host", &self.within_host, "", "the loopback before any other interface"),
            one("ports", &format!("{}-{}", self.ports.start(), self.ports.end()), "", "ports to use; 0: any"),
            one("advertise", &advertise, "", "where peers are to send to instead"),
            one("datagram_bytes", &self.datagram_bytes, "B", "longest datagram; 0: what goes whole, up to 16 KiB"),
            one("sign", &sign, "", "when each datagram is signed"),
            one("segmentation", &self.segmentation, "", "the kernel cuts and joins datagrams"),
            one("pacing_megabytes_per_second", &self.pacing_megabytes_per_second, "MB/s", "leave at most; 0: no limit"),
            one("bandwidth_megabytes_per_second", &self.bandwidth_megabytes_per_second, "MB/s", "share in striping"),
            one("latency_nanos", &self.latency_nanos, "ns", "rank by latency, lower is preferred"),
            one("send_staging_bytes", &self.send_staging_bytes, "B", "frames that wait to leave, per rail"),
            one("send_queue_frames", &self.send_queue_frames, "", "frames that wait to leave, per rail"),
            one("frames_at_once", &self.frames_at_once, "", "short frames between polls that leave by a call each"),
            one("frames_kept", &self.frames_kept, "", "frames that the reader may keep"),
            one("socket_send_buffer_bytes", &self.socket_send_buffer_bytes, "B", "the kernel's send buffer"),
            one("socket_receive_buffer_bytes", &self.socket_receive_buffer_bytes, "B", "the kernel's receive buffer"),
            one("idle_interval_polls", &self.idle_interval_polls, "polls", "between looks at an idle socket"),
            one("connect_timeout", &self.connect_timeout.as_millis(), "ms", "from first use of a peer to an answer"),
            one("hello_interval", &self.hello_interval.as_millis(), "ms", "between hellos that nobody answers"),
        ]
    }
}
