//! Every setting in words, for `towline info`.

use std::fmt::Display;

use crate::Config;

/// One setting for people to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunable {
    /// Its name: that of the field of [`Config`].
    pub name: &'static str,
    /// Its value, in `unit`.
    pub value: String,
    /// Its unit; empty for names and plain numbers.
    pub unit: &'static str,
    /// What it does.
    pub help: &'static str,
}

impl Config {
    /// Every setting with its value, unit and meaning.
    ///
    /// ```
    /// use towline_tcp::{Config, JobKey};
    ///
    /// let all = Config::new(1, 0, JobKey::new([0; 32])).tunables();
    /// assert!(all.iter().any(|it| it.name == "eager_limit_bytes" && it.value == "65600" && it.unit == "B"));
    /// ```
    pub fn tunables(&self) -> Vec<Tunable> {
        let one = |name, value: &dyn Display, unit, help| Tunable { name, value: value.to_string(), unit, help };
        let kernel = |bytes: Option<u32>| bytes.map_or("kernel".to_owned(), |bytes| bytes.to_string());
        let exclude = match &self.filter.exclude {
            Some(list) => list.join(","),
            None if self.filter.include.is_empty() => towline_net::interfaces::BRIDGES.join(","),
            None => String::new(),
        };
        vec![
            one("encrypt", &self.encrypt, "", "when connections are encrypted: off, between-hosts, always"),
            one("filter.include", &self.filter.include.join(","), "", "interfaces that alone are used; empty: all"),
            one("filter.exclude", &exclude, "", "interfaces that are not used"),
            one("ports", &format!("{}-{}", self.ports.start(), self.ports.end()), "", "ports to listen on; 0: any"),
            one("eager_limit_bytes", &self.eager_limit_bytes, "B", "longest eager or control frame"),
            one(
                "rendezvous_eager_limit_bytes",
                &self.rendezvous_eager_limit_bytes,
                "B",
                "longest body that goes with a rendezvous header",
            ),
            one("max_send_size_bytes", &self.max_send_size_bytes, "B", "longest frame of a long message"),
            one("min_fragment_bytes", &self.min_fragment_bytes, "B", "a message's rest below this is not split"),
            one("in_place_from_bytes", &self.in_place_from_bytes, "B", "bodies from here on are sent uncopied"),
            one(
                "splice_from_bytes",
                &self.splice_from_bytes,
                "B",
                "summed bodies from here on are not copied by the kernel either",
            ),
            one("pipe_bytes", &self.pipe_bytes, "B", "pipe by which they leave, per rail; 0: none"),
            one("bandwidth_megabytes_per_second", &self.bandwidth_megabytes_per_second, "MB/s", "share in striping"),
            one("latency_nanos", &self.latency_nanos, "ns", "rank by latency, lower is preferred"),
            one("send_staging_bytes", &self.send_staging_bytes, "B", "frames that wait to leave, per connection"),
            one("control_staging_bytes", &self.control_staging_bytes, "B", "waiting control frames, per connection"),
            one("send_queue_frames", &self.send_queue_frames, "", "frames that wait to leave, per connection"),
            one("large_buffers", &self.large_buffers, "", "buffers for long bodies that must be packed, per rail"),
            one("receive_staging_bytes", &self.receive_staging_bytes, "B", "most that one read takes into staging"),
            one("socket_send_buffer_bytes", &kernel(self.socket_send_buffer_bytes), "B", "the kernel's send buffer"),
            one(
                "socket_receive_buffer_bytes",
                &kernel(self.socket_receive_buffer_bytes),
                "B",
                "the kernel's receive buffer",
            ),
            one(
                "host_congestion_control",
                &self.host_congestion_control,
                "",
                "congestion control of connections within this host; empty: the system's",
            ),
            one("epoll_interval_polls", &self.epoll_interval_polls, "polls", "between looks at epoll, few connections"),
            one(
                "epoll_interval_many_polls",
                &self.epoll_interval_many_polls,
                "polls",
                "between looks at epoll, many connections",
            ),
            one("direct_connections", &self.direct_connections, "", "connections that are read without epoll"),
            one(
                "connect_timeout",
                &self.connect_timeout.as_millis(),
                "ms",
                "from first use of a peer to its connection",
            ),
            one("address_timeout", &self.address_timeout.as_millis(), "ms", "for one address to take the connection"),
            one("hello_timeout", &self.hello_timeout.as_millis(), "ms", "for an unknown caller to say hello"),
            one(
                "dead_host_timeout",
                &self.dead_host_timeout.as_millis(),
                "ms",
                "until a silent host is given up; 0: never",
            ),
            one("pending_inbound", &self.pending_inbound, "", "inbound connections in the middle of a hello"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use towline_net::JobKey;

    use super::*;

    /// The secret stays out of what people and logs see.
    #[test]
    fn the_key_is_not_shown() {
        let config = Config::new(1, 2, JobKey::new([0xAB; 32]));
        let shown = format!("{config:?} {:?}", config.tunables());
        assert!(!shown.contains("171") && !shown.to_lowercase().contains("abab"), "{shown}");
    }
}
