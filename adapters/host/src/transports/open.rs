//! Opens the rails of a context.

use std::net::SocketAddr;
use std::time::Duration;

use towline_bootstrap::Job;
use towline_core::rail::native::Pipeline;
use towline_net::Encrypt;
use towline_net::interfaces::Filter;

use crate::errors::setup::SetupError;
use crate::settings::config::{Config, TRANSPORTS, entries};
use crate::transports::linked::Linked;
use crate::transports::local::{is_oversubscribed, local_contexts};
use crate::transports::rails::AnyRail;
use crate::values::address::Grid;

/// The opened rails of a context, and the transports that do not work here, with the reasons.
pub(crate) struct OpenedRails {
    pub rails: Vec<AnyRail>,
    pub failures: Vec<(String, String)>,
}

/// Opens the transports that are asked for, under the context's number among all of the job. `progress_thread`: the context will
/// have a progress thread.
pub(crate) fn open(config: &Config, job: &Job, grid: Grid, progress_thread: bool) -> Result<OpenedRails, SetupError> {
    let asked = entries(&config.transports);
    let mut opened = OpenedRails { rails: Vec::new(), failures: Vec::new() };
    for name in TRANSPORTS {
        let wanted = asked.iter().any(|asked| asked == name);
        // A job of one context needs no rail to others, unless one was asked for.
        if !wanted && (!asked.is_empty() || grid.total() == 1 || matches!(name, "udp" | "verbs")) {
            continue;
        }
        let links = if name == "sm" { 1 } else { config.links };
        for link in 0..links {
            // Each link has a number of its own, whatever its transport.
            let number = opened.rails.len() as u8;
            let rail = match name {
                "sm" => open_sm(config, job, grid, progress_thread),
                "tcp" => open_tcp(config, job, grid, link as u8, number, progress_thread),
                "udp" => open_udp(config, job, grid, link as u8, number, progress_thread),
                _ => open_verbs(config, job, grid, link as u8, number, progress_thread),
            };
            match rail {
                Ok(rail) => opened.rails.push(rail),
                Err(why) if wanted => return Err(SetupError::Transport { name: name.into(), why }),
                Err(why) => {
                    log::warn!("transport {name} does not work here: {why}");
                    opened.failures.push((name.into(), why));
                }
            }
        }
    }
    Ok(opened)
}

fn open_sm(config: &Config, job: &Job, grid: Grid, thread: bool) -> Result<AnyRail, String> {
    let mut sm = towline_sm::Config::new(job.job_id(), grid.own_number(), grid.total());
    sm.progress_thread = thread;
    sm.directory = config.sm_directory.as_str().into();
    sm.eager_ring_bytes = config.sm_eager_ring_bytes;
    sm.eager_limit_bytes = config.sm_eager_limit_bytes;
    sm.bulk_ring_bytes = match config.sm_bulk_ring_bytes {
        0 => bulk_ring(&sm.directory, sm.bulk_ring_bytes, local_contexts(job, grid)),
        bytes => bytes,
    };
    sm.bulk_limit_bytes = config.sm_bulk_limit_bytes;
    sm.single_copy_bytes = config.sm_single_copy_bytes;
    sm.single_copy_limit_bytes = config.sm_single_copy_limit_bytes;
    sm.share_windows = config.sm_windows;
    sm.liveness_interval = Duration::from_millis(config.sm_liveness_ms.into());
    towline_sm::Rail::open(sm).map(AnyRail::Sm).map_err(|why| why.to_string())
}

/// Bytes of the ring for long messages: `least`, or up to 4 MiB where there are more contexts than processors, so that there are
/// fewer context switches. All rings of all contexts together stay within a quarter of the free memory.
fn bulk_ring(directory: &std::path::Path, least: u32, contexts: usize) -> u32 {
    if !is_oversubscribed(contexts) {
        return least;
    }
    let free = rustix::fs::statvfs(directory).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    let pairs = (contexts as u64).saturating_mul(contexts as u64 - 1);
    let most = (16 << 20) / contexts as u64;
    let bytes = most.min(free / 4 / pairs).clamp(u64::from(least), 4 << 20);
    1 << bytes.ilog2()
}

fn open_tcp(config: &Config, job: &Job, grid: Grid, link: u8, number: u8, thread: bool) -> Result<AnyRail, String> {
    let key = job.key().clone();
    let mut tcp = towline_tcp::Config::new(job.job_id(), grid.own_number(), key);
    let buffer = (config.tcp_socket_bytes != 0).then_some(config.tcp_socket_bytes);
    tcp.link = link;
    tcp.progress_thread = thread;
    tcp.encrypt = config.encrypt;
    tcp.filter = filter(&config.tcp_include, &config.tcp_exclude);
    tcp.ports = ports("TOWLINE_TCP_PORTS", &config.tcp_ports)?;
    tcp.advertise = advertised("TOWLINE_TCP_ADVERTISE", &config.tcp_advertise, link)?;
    tcp.eager_limit_bytes = config.tcp_eager_limit_bytes;
    tcp.rendezvous_eager_limit_bytes = config.tcp_rendezvous_bytes;
    tcp.max_send_size_bytes = config.tcp_max_send_bytes;
    tcp.in_place_from_bytes = config.tcp_in_place_bytes;
    tcp.splice_from_bytes = config.tcp_splice_bytes;
    tcp.pipe_bytes = config.tcp_pipe_bytes;
    tcp.send_staging_bytes = config.tcp_send_staging_bytes;
    (tcp.socket_send_buffer_bytes, tcp.socket_receive_buffer_bytes) = (buffer, buffer);
    tcp.host_congestion_control.clone_from(&config.tcp_host_congestion);
    tcp.epoll_interval_polls = config.tcp_epoll_polls;
    tcp.bandwidth_megabytes_per_second = config.tcp_bandwidth_mb_s;
    tcp.connect_timeout = Duration::from_millis(config.tcp_connect_timeout_ms.into());
    tcp.dead_host_timeout = Duration::from_millis(config.peer_timeout_ms.into());
    let rail = towline_tcp::Rail::new(tcp).map_err(|why| why.to_string())?;
    if config.links == 1 && !config.checksum {
        return Ok(AnyRail::Tcp(rail)); // without other links and checksums it needs no link layer
    }
    Linked::new(rail, number, config, grid, thread).map(AnyRail::LinkedTcp).map_err(|why| why.to_string())
}

fn open_udp(config: &Config, job: &Job, grid: Grid, link: u8, number: u8, thread: bool) -> Result<AnyRail, String> {
    let key = job.key().clone();
    let mut udp = towline_udp::Config::new(job.job_id(), grid.own_number(), key);
    udp.link = link;
    udp.progress_thread = thread;
    udp.encrypt = config.encrypt;
    udp.filter = filter(&config.udp_include, &config.udp_exclude);
    udp.within_host = job.local_ranks().is_some_and(|local| local.len() == job.size() as usize);
    udp.ports = ports("TOWLINE_UDP_PORTS", &config.udp_ports)?;
    udp.advertise = advertised("TOWLINE_UDP_ADVERTISE", &config.udp_advertise, link)?;
    udp.sign = match config.udp_sign.as_str() {
        "network" => None,
        "always" => Some(true),
        "never" => Some(false),
        other => return Err(format!("TOWLINE_UDP_SIGN: `{other}` is not a valid value: use network, always or never")),
    };
    udp.datagram_bytes = config.udp_datagram_bytes;
    udp.segmentation = config.udp_segmentation;
    udp.pacing_megabytes_per_second = config.udp_pacing_mb_s;
    udp.bandwidth_megabytes_per_second = config.udp_bandwidth_mb_s;
    udp.socket_send_buffer_bytes = config.udp_send_buffer_bytes;
    udp.socket_receive_buffer_bytes = config.udp_receive_buffer_bytes;
    udp.connect_timeout = Duration::from_millis(config.udp_connect_timeout_ms.into());
    let rail = towline_udp::Rail::new(udp).map_err(|why| why.to_string())?;
    Linked::new(rail, number, config, grid, thread).map(AnyRail::Udp).map_err(|why| why.to_string())
}

fn open_verbs(config: &Config, job: &Job, grid: Grid, link: u8, number: u8, thread: bool) -> Result<AnyRail, String> {
    if config.encrypt == Encrypt::Always {
        return Err(
            "TOWLINE_ENCRYPT is `always`, but RDMA devices cannot encrypt: use another transport, or another value"
                .into(),
        );
    }
    let key = job.key().clone();
    let mut verbs = towline_verbs::Config::new(job.job_id(), grid.own_number(), key);
    verbs.link = link;
    // The ranks of a host are distributed over its ports, each with all its links.
    let before = job.local_ranks().and_then(|local| local.iter().position(|rank| *rank == job.rank()));
    verbs.turn = before.unwrap_or(0) as u32 * config.links + u32::from(link);
    verbs.progress_thread = thread;
    verbs.devices = entries(&config.verbs_devices);
    verbs.gid_index = match config.verbs_gid_index.trim() {
        "" => None,
        text => Some(text.parse().map_err(|_| format!("TOWLINE_VERBS_GID_INDEX: `{text}` is not a number"))?),
    };
    verbs.path_mtu_bytes = config.verbs_path_mtu;
    verbs.traffic_class = config.verbs_traffic_class;
    verbs.eager_limit_bytes = config.verbs_eager_limit_bytes;
    verbs.max_send_size_bytes = config.verbs_max_send_bytes;
    verbs.inline_bytes = config.verbs_inline_bytes;
    verbs.signal_every = config.verbs_signal_every;
    verbs.pipeline = pipeline(config)?;
    verbs.receive_buffers = config.verbs_receive_buffers;
    verbs.bandwidth_megabytes_per_second = config.verbs_bandwidth_mb_s;
    verbs.connect_timeout = Duration::from_millis(config.verbs_connect_timeout_ms.into());
    verbs.peer_timeout = Duration::from_millis(config.peer_timeout_ms.into());
    if config.peer_timeout_ms == 0 {
        verbs.heartbeat = Duration::ZERO;
    }
    let rail = towline_verbs::Rail::new(verbs).map_err(|why| why.to_string())?;
    if config.links == 1 && !config.checksum {
        return Ok(AnyRail::Verbs(rail)); // as for tcp
    }
    Linked::new(rail, number, config, grid, thread).map(AnyRail::LinkedVerbs).map_err(|why| why.to_string())
}

/// Which messages the devices move themselves. `None`: the device's default.
fn pipeline(config: &Config) -> Result<Option<Pipeline>, String> {
    let text = config.verbs_direct_bytes.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let least = text.parse().map_err(|_| format!("TOWLINE_VERBS_DIRECT_BYTES: `{text}` is not a number of bytes"))?;
    Ok(Some(Pipeline {
        least: if least == 0 { u64::MAX } else { least },
        by_frames: config.verbs_direct_after_bytes.into(),
        piece: config.verbs_direct_piece_bytes.max(4096),
        gets: config.verbs_direct_get,
    }))
}

fn filter(include: &str, exclude: &str) -> Filter {
    let exclude = entries(exclude);
    Filter { include: entries(include), exclude: (!exclude.is_empty()).then_some(exclude) }
}

fn ports(variable: &str, text: &str) -> Result<std::ops::RangeInclusive<u16>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) => Ok(first..=last),
        _ => Err(format!("{variable}: `{text}` is not a range of ports: write one such as 5000-5100")),
    }
}

/// The address that a link publishes if a forwarder stands before it: that of the first link, with the port of this link.
fn advertised(variable: &str, text: &str, link: u8) -> Result<Option<SocketAddr>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let wrong = || format!("{variable}: `{text}` is not an address with a port: write one such as 10.0.0.1:5000");
    let first: SocketAddr = text.trim().parse().map_err(|_| wrong())?;
    let port = first.port().checked_add(link.into()).filter(|_| first.port() != 0);
    let none =
        || format!("{variable}: link {link} has no port after {text}: choose a first port with room for all links");
    let port = port.ok_or_else(none)?;
    Ok(Some(SocketAddr::new(first.ip(), port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_move_messages_by_default_or_as_configured() {
        let of = |text: &str| {
            let (verbs_direct_bytes, verbs_direct_get) = (text.to_string(), true);
            pipeline(&Config { verbs_direct_bytes, verbs_direct_get, ..Config::default() })
        };
        let asked = |least| Ok(Some(Pipeline { least, by_frames: 1 << 16, piece: 1 << 20, gets: true }));
        assert_eq!([of(""), of(" 20000 "), of("0")], [Ok(None), asked(20_000), asked(u64::MAX)]);
        for wrong in ["64K", "-1"] {
            assert!(of(wrong).is_err_and(|why| why.contains("TOWLINE_VERBS_DIRECT_BYTES") && why.contains(wrong)));
        }
    }

    #[test]
    fn links_are_advertised_at_consecutive_ports() {
        assert_eq!(advertised("A", "", 1), Ok(None));
        assert_eq!(advertised("A", " 10.0.0.1:80 ", 2), Ok(Some("10.0.0.1:82".parse().unwrap())));
        for wrong in ["10.0.0.1", "10.0.0.1:0", "10.0.0.1:65535"] {
            assert!(advertised("A", wrong, 1).is_err_and(|why| why.contains(wrong)));
        }
    }

    #[test]
    fn port_ranges_are_parsed() {
        assert_eq!(ports("P", "0"), Ok(0..=0));
        assert_eq!(ports("P", " 5000 - 5100 "), Ok(5000..=5100));
        for wrong in ["5000-", "70000"] {
            assert!(ports("P", wrong).is_err_and(|why| why.contains("P: ") && why.contains(wrong)));
        }
    }

    #[test]
    fn rings_grow_only_where_processors_are_oversubscribed_and_never_beyond_free_memory() {
        let here = std::path::Path::new("/dev/shm");
        assert_eq!(bulk_ring(here, 1 << 18, 1), 1 << 18);
        for ranks in [1000, 100_000] {
            assert_eq!(bulk_ring(here, 1 << 18, ranks), 1 << 18, "16 MiB in all for {ranks} ranks");
        }
        assert_eq!(bulk_ring(std::path::Path::new("/nowhere"), 1 << 18, 1000), 1 << 18);
    }
}
