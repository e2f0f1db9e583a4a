//! Everything that can be set: from the program, or from the environment, which has the last word.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use towline_net::Encrypt;

use crate::errors::setup::SetupError;

/// One setting as it is in force, for people to read: `towline info` lists them.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Tunable {
    /// Its name: that of the field of [`Config`].
    pub name: &'static str,
    /// The variable of the environment that sets it.
    pub variable: &'static str,
    /// Its value, in `unit`.
    pub value: String,
    /// What the value is where nobody sets it.
    pub default: String,
    /// Its unit; empty for numbers of things and for names.
    pub unit: &'static str,
    /// Who set it.
    pub origin: Origin,
    /// What it does.
    pub help: &'static str,
}

/// Who set a tunable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Origin {
    /// Nobody.
    Default,
    /// The program, with [`Builder`](crate::Builder).
    Program,
    /// The tunable's variable of the environment.
    Environment,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Program => "program",
            Self::Environment => "environment",
        })
    }
}

macro_rules! tunables {
    ($($name:ident, $variable:literal: $type:ty = $default:expr, $unit:literal, $help:literal;)*) => {
        /// What a [`World`](crate::World) is made from. Each field is also read from a variable of the environment,
        /// `TOWLINE_` and the field's name in capitals, which goes before what the program says.
        ///
        /// ```
        /// let mut config = towline::Config::default();
        /// config.requests = 1000;
        /// config.tcp_include = "10.0.0.0/8".into();
        /// assert_eq!(config.unit_bytes, 65_536);
        /// ```
        #[derive(Clone, PartialEq, Debug)]
        #[non_exhaustive]
        pub struct Config {
            $(
                #[doc = concat!($help, ". ", unit_doc!($unit), "Default: `", stringify!($default), "`.")]
                pub $name: $type,
            )*
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($name: $default.into(),)* }
            }
        }

        impl Config {
            /// This configuration with what `lookup` knows of the environment, and the list of all settings.
            pub(crate) fn overlaid(
                mut self, lookup: impl Fn(&str) -> Option<String>,
            ) -> Result<(Self, Vec<Tunable>), SetupError> {
                let standard = Self::default();
                let mut list = Vec::new();
                $(
                    let mut origin = if self.$name == standard.$name { Origin::Default } else { Origin::Program };
                    if let Some(text) = lookup($variable) {
                        self.$name = parse($variable, &text)?;
                        origin = Origin::Environment;
                    }
                    list.push(Tunable {
                        name: stringify!($name),
                        variable: $variable,
                        value: self.$name.to_string(),
                        default: standard.$name.to_string(),
                        unit: $unit,
                        origin,
                        help: $help,
                    });
                )*
                self.check()?;
                Ok((self, list))
            }

            /// All settings as they would be in force here and now: those of the environment go first.
            ///
            /// # Errors
            /// As [`tunables_from`](Self::tunables_from).
            ///
            /// ```
            /// let tunables = towline::Config::default().tunables()?;
            /// let spin = tunables.iter().find(|tunable| tunable.name == "spin_us").unwrap();
            /// assert_eq!((spin.unit, spin.variable), ("us", "TOWLINE_SPIN_US"));
            /// # Ok::<(), towline::SetupError>(())
            /// ```
            pub fn tunables(&self) -> Result<Vec<Tunable>, SetupError> {
                self.tunables_from(|name| std::env::var(name).ok())
            }

            /// As [`tunables`](Self::tunables), with what `lookup` knows instead of the environment: for launchers, which
            /// see before they start a rank whether it could use its settings.
            ///
            /// # Errors
            /// [`SetupError::Variable`] for a variable that cannot be understood, [`SetupError::UnknownTransport`] and
            /// [`SetupError::OutOfRange`] for settings that no rank can use.
            ///
            /// ```
            /// let many = |name: &str| (name == "TOWLINE_LINKS").then(|| "1000".to_string());
            /// let why = towline::Config::default().tunables_from(many).unwrap_err();
            /// assert_eq!(why.to_string(), "TOWLINE_LINKS: 1000 is out of range, which is 1 to 64");
            /// ```
            pub fn tunables_from(
                &self, lookup: impl Fn(&str) -> Option<String>,
            ) -> Result<Vec<Tunable>, SetupError> {
                Ok(self.clone().overlaid(lookup)?.1)
            }
        }
    };
}

macro_rules! unit_doc {
    ("") => {
        ""
    };
    ($unit:literal) => {
        concat!("Unit: ", $unit, ". ")
    };
}

tunables! {
    transports, "TOWLINE_TRANSPORTS": String = "", "",
        "Transports to use, such as `sm,tcp`; empty for these two, if they work here: udp and verbs are used only where they are named";
    links, "TOWLINE_LINKS": u32 = 1u32, "",
        "Links of tcp, of udp and of verbs to each peer, over which long messages are striped: 1 to 64. Of several links, frames of one that breaks down go by the others";
    startup_timeout_ms, "TOWLINE_STARTUP_TIMEOUT_MS": u32 = 60_000u32, "ms",
        "How long to wait for all ranks to come up";
    finish_timeout_ms, "TOWLINE_FINISH_TIMEOUT_MS": u32 = 60_000u32, "ms",
        "How long to wait at the end for all ranks to come to their end";
    peer_timeout_ms, "TOWLINE_PEER_TIMEOUT_MS": u32 = 5_000u32, "ms",
        "How long a host may answer nothing before its ranks are given up; 0 leaves that to the kernel, whose limit is hours. RDMA devices are asked for 30 s at most, also for 0, and may take up to four times what they are asked for. A rank that computes or is stopped is not given up";
    stall_timeout_ms, "TOWLINE_STALL_TIMEOUT_MS": u32 = 0u32, "ms",
        "How long a rank that something is waited for may make no progress before it counts as dead, whatever transport leads to it: also one that is stopped, or that computes without a progress thread; 0 waits for ever";

    requests, "TOWLINE_REQUESTS": u32 = 65_536u32, "",
        "Operations under way at most; memory is taken as they are used";
    unexpected, "TOWLINE_UNEXPECTED": u32 = 0u32, "",
        "Envelopes for messages that come before their receive, shared among all peers; 0 for 128 a peer, 4096 at least";
    units, "TOWLINE_UNITS": u32 = 0u32, "",
        "Payload units for messages that come before their receive, shared among all peers; 0 for 32 a peer, 1024 at least";
    unit_bytes, "TOWLINE_UNIT_BYTES": u32 = 65_536u32, "B",
        "Bytes of a payload unit at most: no longer message goes to this process before its receive. Less where no transport sends as much at once, and, unless `units` is set, where all units would take over 64 MiB, down to 8 KiB";
    communicators, "TOWLINE_COMMUNICATORS": u32 = 256u32, "",
        "Communicators at most";

    spin_us, "TOWLINE_SPIN_US": u32 = 50u32, "us",
        "How long a waiting rank polls, and lets others run now and then; not at all where ranks outnumber processors";
    yield_us, "TOWLINE_YIELD_US": u32 = 200u32, "us",
        "How long it then lets others run after each poll, before it sleeps; a tenth of it where ranks outnumber processors";
    idle_sleep_ms, "TOWLINE_IDLE_SLEEP_MS": u32 = 500u32, "ms",
        "How long a waiting rank sleeps at a time, though nothing wakes it";
    progress_thread, "TOWLINE_PROGRESS_THREAD": String = "auto", "",
        "Whether a thread of the library makes progress while the program computes: `always`, `never`, or `auto`: where udp is used, which loses frames and tells of lost hosts by heartbeats. The same for all ranks";
    unwind_timeout_ms, "TOWLINE_UNWIND_TIMEOUT_MS": u32 = 10_000u32, "ms",
        "How long a panicking rank waits for messages from borrowed memory, before it ends the process";

    sm_directory, "TOWLINE_SM_DIRECTORY": String = "/dev/shm", "",
        "File system in memory that holds the segments of sm";
    sm_eager_ring_bytes, "TOWLINE_SM_EAGER_RING_BYTES": u32 = 65_536u32, "B",
        "Ring of sm for short frames, per peer sent to: a power of two";
    sm_eager_limit_bytes, "TOWLINE_SM_EAGER_LIMIT_BYTES": u32 = 8_248u32, "B",
        "Longest short frame of sm, header included";
    sm_bulk_ring_bytes, "TOWLINE_SM_BULK_RING_BYTES": u32 = 0u32, "B",
        "Ring of sm for fragments of long messages, per peer sent to: a power of two; 0 for 256 KiB, and where ranks outnumber processors for up to 4 MiB, so that they take turns less often";
    sm_bulk_limit_bytes, "TOWLINE_SM_BULK_LIMIT_BYTES": u32 = 16_376u32, "B",
        "Longest fragment of sm, header included";
    sm_single_copy_bytes, "TOWLINE_SM_SINGLE_COPY_BYTES": u32 = 8_192u32, "B",
        "Messages from so many bytes on may be read by their receiver from where they lie, through the kernel, where that works; 0 for none";
    sm_single_copy_limit_bytes, "TOWLINE_SM_SINGLE_COPY_LIMIT_BYTES": u32 = 1_048_576u32, "B",
        "Longer messages of sm are copied through a ring: the receiver does nothing else during a single copy";
    sm_windows, "TOWLINE_SM_WINDOWS": bool = true, "",
        "Whether ranks that sm connects reach into each other's windows themselves; else the target does it when it makes progress";
    sm_liveness_ms, "TOWLINE_SM_LIVENESS_MS": u32 = 250u32, "ms",
        "How often sm looks for dead peers";

    tcp_include, "TOWLINE_TCP_INCLUDE": String = "", "",
        "Interfaces or networks that tcp may use, such as `eth*,10.0.0.0/8`; empty for all";
    tcp_exclude, "TOWLINE_TCP_EXCLUDE": String = "", "",
        "Interfaces or networks that tcp leaves alone; empty for container bridges";
    tcp_ports, "TOWLINE_TCP_PORTS": String = "0", "",
        "Ports that tcp listens on, such as `5000-5100`; 0 lets the system choose";
    tcp_advertise, "TOWLINE_TCP_ADVERTISE": String = "", "",
        "Address and port that other ranks connect to instead, of something that forwards to this rank's: further links have the ports after it; empty for none";
    tcp_eager_limit_bytes, "TOWLINE_TCP_EAGER_LIMIT_BYTES": u32 = 65_600u32, "B",
        "Longest short frame of tcp, header included";
    tcp_rendezvous_bytes, "TOWLINE_TCP_RENDEZVOUS_BYTES": u32 = 8_192u32, "B",
        "What of a longer message goes ahead, before its receive is known";
    tcp_max_send_bytes, "TOWLINE_TCP_MAX_SEND_BYTES": u32 = 1_048_576u32, "B",
        "Longest fragment of tcp, header included";
    tcp_in_place_bytes, "TOWLINE_TCP_IN_PLACE_BYTES": u32 = 8_192u32, "B",
        "Bodies from this size on leave from where they lie";
    tcp_splice_bytes, "TOWLINE_TCP_SPLICE_BYTES": u32 = 65_536u32, "B",
        "Bodies from this size on leave without a copy, by a pipe, where TOWLINE_CHECKSUM is on and they are not encrypted";
    tcp_pipe_bytes, "TOWLINE_TCP_PIPE_BYTES": u32 = 1_048_576u32, "B",
        "That pipe, one for each link, of two descriptors; 0 for none";
    tcp_send_staging_bytes, "TOWLINE_TCP_SEND_STAGING_BYTES": u32 = 262_144u32, "B",
        "Staging of tcp for frames that wait to leave, per connection";
    tcp_socket_bytes, "TOWLINE_TCP_SOCKET_BYTES": u32 = 0u32, "B",
        "The kernel's send and receive buffers of each connection; 0 leaves them to the kernel";
    tcp_host_congestion, "TOWLINE_TCP_HOST_CONGESTION": String = "reno", "",
        "Congestion control of connections within a host, by the kernel's name; empty leaves it to the system";
    tcp_epoll_polls, "TOWLINE_TCP_EPOLL_POLLS": u32 = 64u32, "",
        "Idle polls of tcp between two looks at all connections";
    tcp_bandwidth_mb_s, "TOWLINE_TCP_BANDWIDTH_MB_S": u32 = 3000u32, "MB/s",
        "Share of a tcp link in striping";
    tcp_connect_timeout_ms, "TOWLINE_TCP_CONNECT_TIMEOUT_MS": u32 = 120_000u32, "ms",
        "From the first message to a peer to the connection: a peer that computes answers late";

    udp_include, "TOWLINE_UDP_INCLUDE": String = "", "",
        "Interfaces or networks that udp may use, such as `eth*,10.0.0.0/8`; empty for all. Each link uses one of them: the loopback where all ranks are on one host";
    udp_exclude, "TOWLINE_UDP_EXCLUDE": String = "", "",
        "Interfaces or networks that udp leaves alone; empty for container bridges";
    udp_ports, "TOWLINE_UDP_PORTS": String = "0", "",
        "Ports that udp uses, such as `5000-5100`; 0 lets the system choose";
    udp_advertise, "TOWLINE_UDP_ADVERTISE": String = "", "",
        "Address and port that other ranks send to instead, of something that forwards to this rank's: further links have the ports after it; empty for none";
    udp_datagram_bytes, "TOWLINE_UDP_DATAGRAM_BYTES": u32 = 0u32, "B",
        "Longest datagram; 0 for what goes whole through the interface, up to 16 KiB";
    udp_sign, "TOWLINE_UDP_SIGN": String = "network", "",
        "When each datagram is signed, so that nobody on the way can change any: `always`, `never`, or `network`: unless it stays on this host";
    udp_segmentation, "TOWLINE_UDP_SEGMENTATION": bool = true, "",
        "Let the kernel cut and join datagrams, where it can";
    udp_pacing_mb_s, "TOWLINE_UDP_PACING_MB_S": u32 = 0u32, "MB/s",
        "What a udp link sends at most; 0 for as much as it goes";
    udp_bandwidth_mb_s, "TOWLINE_UDP_BANDWIDTH_MB_S": u32 = 2000u32, "MB/s",
        "Share of a udp link in striping";
    udp_send_buffer_bytes, "TOWLINE_UDP_SEND_BUFFER_BYTES": u32 = 4_194_304u32, "B",
        "The kernel's send buffer of each socket; the system bounds it (net.core.wmem_max)";
    udp_receive_buffer_bytes, "TOWLINE_UDP_RECEIVE_BUFFER_BYTES": u32 = 4_194_304u32, "B",
        "The kernel's receive buffer of each socket: what comes while it is full has to come again; the system bounds it (net.core.rmem_max)";
    udp_connect_timeout_ms, "TOWLINE_UDP_CONNECT_TIMEOUT_MS": u32 = 120_000u32, "ms",
        "From the first message to a peer to its answer: a peer that computes answers late";

    verbs_devices, "TOWLINE_VERBS_DEVICES": String = "", "",
        "RDMA devices, or ports of them such as `mlx5_0:1`, that verbs may use; empty for all that are up. Links, and the ranks of a host, take turns on them; of several networks a link uses one, by its number";
    verbs_gid_index, "TOWLINE_VERBS_GID_INDEX": String = "", "",
        "Which of a port's addresses verbs uses, by its number; empty to choose: RoCE v2 before v1, IPv4 before IPv6";
    verbs_path_mtu, "TOWLINE_VERBS_PATH_MTU": u32 = 0u32, "B",
        "Bytes of a packet at most; 0 for as many as both ports carry";
    verbs_traffic_class, "TOWLINE_VERBS_TRAFFIC_CLASS": u8 = 0u8, "",
        "Mark of packets for the network's quality of service: traffic class with RoCE, service level with InfiniBand";
    verbs_windows, "TOWLINE_VERBS_WINDOWS": bool = false, "",
        "Whether the devices put to windows and get from them by themselves, where no rail maps them, so that the target need not make progress; whoever then uses a window that its owner has dropped loses the connection to the owner";
    verbs_direct_bytes, "TOWLINE_VERBS_DIRECT_BYTES": String = "", "B",
        "From how many bytes on the devices move a message that this rank receives from the sender's memory to its own, without a copy; 0 for never; empty for what suits the device, which then says the next three, too";
    verbs_direct_after_bytes, "TOWLINE_VERBS_DIRECT_AFTER_BYTES": u32 = 65_536u32, "B",
        "Bytes of such a message that go in fragments while memory is registered for the first piece, where `TOWLINE_VERBS_DIRECT_BYTES` is set";
    verbs_direct_piece_bytes, "TOWLINE_VERBS_DIRECT_PIECE_BYTES": u32 = 1_048_576u32, "B",
        "Longest piece of such a message: so much memory is registered, and moved, at a time, where `TOWLINE_VERBS_DIRECT_BYTES` is set";
    verbs_direct_get, "TOWLINE_VERBS_DIRECT_GET": bool = false, "",
        "Whether the receiver's device gets such messages, where `TOWLINE_VERBS_DIRECT_BYTES` is set; else the sender's puts them";
    verbs_eager_limit_bytes, "TOWLINE_VERBS_EAGER_LIMIT_BYTES": u32 = 65_600u32, "B",
        "Longest short frame of verbs, header included; less where devices move shorter messages than that";
    verbs_max_send_bytes, "TOWLINE_VERBS_MAX_SEND_BYTES": u32 = 65_600u32, "B",
        "Longest fragment of verbs, header included";
    verbs_inline_bytes, "TOWLINE_VERBS_INLINE_BYTES": u32 = 220u32, "B",
        "Frames up to this length go within their work request, as far as the device can do that";
    verbs_signal_every, "TOWLINE_VERBS_SIGNAL_EVERY": u32 = 8u32, "",
        "The device tells of each so-many-th frame that it has arrived";
    verbs_receive_buffers, "TOWLINE_VERBS_RECEIVE_BUFFERS": u32 = 128u32, "",
        "Buffers of a verbs link for what comes from all peers, of a fragment each: memory that stays in place";
    verbs_bandwidth_mb_s, "TOWLINE_VERBS_BANDWIDTH_MB_S": u32 = 6000u32, "MB/s",
        "Share of a verbs link in striping";
    verbs_connect_timeout_ms, "TOWLINE_VERBS_CONNECT_TIMEOUT_MS": u32 = 120_000u32, "ms",
        "From the first message to a peer to the connection: a peer that computes answers late";

    encrypt, "TOWLINE_ENCRYPT": Encrypt = Encrypt::BetweenHosts, "",
        "When connections of tcp and udp are encrypted: `off`, `between-hosts` (not those of ranks on one host; containers with a network of their own count as hosts) or `always`; ranks where this comes to different things refuse each other. What goes by verbs is never encrypted, so verbs does not work with `always`. Peers prove in any case that they know the job's key";
    checksum, "TOWLINE_CHECKSUM": bool = false, "",
        "Check tcp's frames by sums of our own, beyond the network's; udp's always are";
    link_window, "TOWLINE_LINK_WINDOW": u32 = 256u32, "",
        "Frames to one peer that may be unacknowledged, by each link that acknowledges: a power of two from 4 to 1024";
}

/// What can be asked for, in the order in which rails are polled.
pub(crate) const TRANSPORTS: [&str; 4] = ["sm", "tcp", "udp", "verbs"];

/// Links to a peer.
const LINKS: RangeInclusive<u32> = 1..=64;

impl Config {
    /// Settings that are wrong on any machine.
    fn check(&self) -> Result<(), SetupError> {
        let known = |name: &String| TRANSPORTS.contains(&name.as_str()) || name == "loopback";
        if let Some(unknown) = entries(&self.transports).into_iter().find(|name| !known(name)) {
            return Err(SetupError::UnknownTransport(unknown));
        }
        if !LINKS.contains(&self.links) {
            return Err(SetupError::OutOfRange { variable: "TOWLINE_LINKS", value: self.links, range: LINKS });
        }
        Ok(())
    }
}

fn parse<T: FromStr>(variable: &'static str, text: &str) -> Result<T, SetupError> {
    text.trim().parse().map_err(|_| SetupError::Variable { variable, value: text.into() })
}

/// The entries of a list with commas.
pub(crate) fn entries(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_goes_before_the_program_and_both_are_named() {
        let config = Config { requests: 7, units: 9, ..Config::default() };
        let lookup = |name: &str| (name == "TOWLINE_UNITS").then(|| " 11 ".to_string());
        let (config, list) = config.overlaid(lookup).unwrap();
        assert_eq!((config.requests, config.units), (7, 11));
        let origin = |name| list.iter().find(|tunable| tunable.name == name).map(|tunable| tunable.origin);
        assert_eq!(origin("requests"), Some(Origin::Program));
        assert_eq!(origin("units"), Some(Origin::Environment));
        assert_eq!(origin("links"), Some(Origin::Default));
    }

    #[test]
    fn each_variable_is_the_name_in_capitals_and_a_wrong_value_is_refused() {
        let (_, list) = Config::default().overlaid(|_| None).unwrap();
        for tunable in &list {
            assert_eq!(tunable.variable, format!("TOWLINE_{}", tunable.name.to_uppercase()));
            assert_eq!(tunable.value, tunable.default);
        }
        let wrong = Config::default().overlaid(|name| (name == "TOWLINE_LINKS").then(|| "many".into())).unwrap_err();
        assert!(wrong.to_string().contains("TOWLINE_LINKS"), "{wrong}");
    }

    #[test]
    fn lists_with_commas() {
        assert_eq!(entries(" a, b,,c "), ["a", "b", "c"]);
        assert!(entries("").is_empty());
    }
}
