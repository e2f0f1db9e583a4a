//! The rail kit over TCP rails of one process.

use std::os::fd::AsFd;

use towline_host_tests::kit::bench::Setup;
use towline_host_tests::kit::sockets::Sockets;
use towline_host_tests::rail_suite;
use towline_tcp::{Config, Encrypt, JobKey, Rail};

fn tcp(change: fn(&mut Config)) -> impl Setup<Rail = Rail> {
    links(1, change)
}

fn links(count: usize, change: fn(&mut Config)) -> impl Setup<Rail = Rail> {
    let make = move |rank, link| {
        let mut config = Config::new(0x51, rank, JobKey::new([0x17; 32]));
        config.link = link;
        change(&mut config);
        Rail::new(config).expect("this host has a loopback")
    };
    Sockets::new(make, Rail::as_fd).linked(count)
}

mod defaults {
    use super::*;
    rail_suite!(tcp(|_| {}));
}

/// Little room everywhere, so that every check fills it, and epoll instead of direct reads.
mod tight {
    use super::*;
    rail_suite!(tcp(|config| {
        config.link = 2;
        config.eager_limit_bytes = 700;
        config.rendezvous_eager_limit_bytes = 700;
        config.max_send_size_bytes = 9000;
        config.min_fragment_bytes = 700;
        config.in_place_from_bytes = 600;
        config.send_queue_frames = 4;
        config.large_buffers = 1;
        config.receive_staging_bytes = 1024;
        config.socket_send_buffer_bytes = Some(16 * 1024);
        config.socket_receive_buffer_bytes = Some(16 * 1024);
        config.direct_connections = 0;
        config.epoll_interval_many_polls = 1;
    }));
}

/// All connections sealed, and little room.
mod sealed {
    use super::*;
    rail_suite!(tcp(|config| {
        config.encrypt = Encrypt::Always;
        config.eager_limit_bytes = 700;
        config.max_send_size_bytes = 90_000;
        config.in_place_from_bytes = 600;
        config.receive_staging_bytes = 1024;
        config.socket_send_buffer_bytes = Some(16 * 1024);
        config.socket_receive_buffer_bytes = Some(16 * 1024);
    }));
}

/// Matching transports over three sealed connections a pair.
mod mtl_sealed {
    use super::*;
    towline_host_tests::mtl_suite!(links(3, |config| config.encrypt = Encrypt::Always));
}

/// IPv6 alone.
mod ipv6 {
    use super::*;
    rail_suite!(tcp(|config| config.filter.include = vec!["::1".into()]));
}

/// Matching transports over one connection a pair.
mod mtl {
    use super::*;
    towline_host_tests::mtl_suite!(links(1, |_| {}));
}

/// Matching transports over three connections a pair.
mod mtl_three_links {
    use super::*;
    towline_host_tests::mtl_suite!(links(3, |_| {}));
}
