//! The kits over TCP rails in one process.

use std::os::fd::{AsFd, BorrowedFd};

use towline_core::arena::Arena;
use towline_core::link::{self, Crc32c, Link};
use towline_core::rail::{LINKED_HEAD, Rail as _};
use towline_host_tests::kit::LINK_TIMEOUT;
use towline_host_tests::kit::mesh::Setup;
use towline_host_tests::kit::socket_setup::SocketSetup;
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
    SocketSetup::new(make, Rail::as_fd).with_links(count)
}

/// Links that checksum all bodies. Bodies from 600 bytes on are sent through a pipe of one page.
fn summed(count: usize, change: fn(&mut Config)) -> impl Setup<Rail = Link<'static, Rail, Crc32c>> {
    let make = move |rank, link| {
        let mut config = Config::new(0x51, rank, JobKey::new([0x17; 32]));
        (config.link, config.splice_from_bytes, config.pipe_bytes) = (link, 600, 4096);
        change(&mut config);
        let raw = Rail::new(config).expect("this host has a loopback");
        let settings = link::Config::new(link, u64::from(rank) + 1, raw.attributes());
        let settings =
            link::Config { peers: 4, sums: true, dead_after: LINK_TIMEOUT, hello_within: LINK_TIMEOUT, ..settings };
        let room = vec![0; settings.bytes(&raw)].leak();
        Link::new(raw, Crc32c, settings, &mut Arena::new(room)).expect("room for all tables")
    };
    SocketSetup::new(make, handle).with_longest_header(LINKED_HEAD).with_links(count)
}

fn handle<'l>(link: &'l Link<'static, Rail, Crc32c>) -> BorrowedFd<'l> {
    link.raw().as_fd()
}

mod defaults {
    use super::*;
    rail_suite!(tcp(|_| {}));
}

/// Small buffers, so that every check fills them, and epoll instead of direct reads.
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

/// Bodies that are sent without a copy, with large and with small buffers.
mod uncopied {
    use super::*;
    rail_suite!(summed(1, |_| {}));
}

mod uncopied_tight {
    use super::*;
    rail_suite!(summed(1, |config| {
        config.eager_limit_bytes = 4000;
        config.max_send_size_bytes = 90_000;
        config.send_queue_frames = 4;
        config.receive_staging_bytes = 1024;
        config.socket_send_buffer_bytes = Some(16 * 1024);
        config.socket_receive_buffer_bytes = Some(16 * 1024);
    }));
}

/// Matching transports with two links for each pair.
mod mtl_uncopied {
    use super::*;
    towline_host_tests::matching_suite!(summed(2, |_| {}));
}

/// All connections encrypted, with small buffers.
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

/// Matching transports with three encrypted connections for each pair.
mod mtl_sealed {
    use super::*;
    towline_host_tests::matching_suite!(links(3, |config| config.encrypt = Encrypt::Always));
}

/// IPv6 only.
mod ipv6 {
    use super::*;
    rail_suite!(tcp(|config| config.filter.include = vec!["::1".into()]));
}

/// Matching transports with one connection for each pair.
mod mtl {
    use super::*;
    towline_host_tests::matching_suite!(links(1, |_| {}));
}

/// Matching transports with three connections for each pair.
mod mtl_three_links {
    use super::*;
    towline_host_tests::matching_suite!(links(3, |_| {}));
}

/// One-sided operations, emulated.
mod one_sided {
    use super::*;
    towline_host_tests::one_sided_suite!(tcp(|_| {}));
}
