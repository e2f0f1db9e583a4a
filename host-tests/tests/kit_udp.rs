//! The kits over UDP rails in one process. All checks run over links, also with a network that loses, duplicates,
//! reorders and corrupts datagrams. The checks of the rail kit that tolerate lost frames also run over rails without links:
//! on a loopback interface with room in the sockets, a few frames at a time get through.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use towline_core::arena::Arena;
use towline_core::link::{self, Crc32c, Link};
use towline_core::rail::{LINKED_HEAD, Lane, Rail as _, SendError, Shape};
use towline_host_tests::kit::LINK_TIMEOUT;
use towline_host_tests::kit::lossy_network::{Faults, LossyNetwork};
use towline_host_tests::kit::mesh::{Mesh, Setup};
use towline_host_tests::kit::socket_setup::SocketSetup;
use towline_host_tests::pattern::patterned;
use towline_host_tests::{matching_suite, rail_suite};
use towline_net::{Encrypt, JobKey};
use towline_udp::{Config, Rail};

fn config(rank: u32, link: u8) -> Config {
    let mut config = Config::new(0x51, rank, JobKey::new([0x17; 32]));
    config.link = link;
    config.within_host = true;
    config.idle_interval_polls = 1;
    config
}

fn udp(change: fn(&mut Config)) -> impl Setup<Rail = Rail> {
    let make = move |rank, link| {
        let mut config = config(rank, link);
        change(&mut config);
        Rail::new(config).expect("this host has a loopback")
    };
    SocketSetup::new(make, Rail::as_fd)
}

/// UDP rails over a network with these faults.
fn through(relay: Rc<RefCell<LossyNetwork>>, encrypt: Encrypt) -> impl Setup<Rail = Rail> {
    let turns = Rc::clone(&relay);
    let make = move |rank, link| {
        let mut config = config(rank, link);
        config.sign = Some(true);
        config.encrypt = encrypt;
        config.renew_after_datagrams = 50;
        let mut relay = relay.borrow_mut();
        config.advertise = Some(relay.address(rank as usize));
        let rail = Rail::new(config).expect("this host has a loopback");
        relay.connect(rank as usize, rail.address());
        rail
    };
    SocketSetup::new(make, Rail::as_fd).with_network(move || turns.borrow_mut().forward_all())
}

/// A link over a UDP rail.
fn linked(raw: Rail, rank: u32, number: u8) -> Link<'static, Rail, Crc32c> {
    let mut config = link::Config::new(number, u64::from(rank) + 1, raw.attributes());
    config.peers = 4;
    (config.dead_after, config.hello_within) = (LINK_TIMEOUT, LINK_TIMEOUT);
    let room = vec![0; config.bytes(&raw)].leak();
    Link::new(raw, Crc32c, config, &mut Arena::new(room)).expect("room for all tables")
}

fn handle<'l>(link: &'l Link<'static, Rail, Crc32c>) -> BorrowedFd<'l> {
    link.raw().as_fd()
}

fn links(count: usize, change: fn(&mut Config)) -> impl Setup<Rail = Link<'static, Rail, Crc32c>> {
    let make = move |rank, link| {
        let mut config = config(rank, link);
        change(&mut config);
        linked(Rail::new(config).expect("this host has a loopback"), rank, link)
    };
    SocketSetup::new(make, handle).with_longest_header(LINKED_HEAD).with_links(count)
}

/// Links over networks with these faults. Each link has a network of its own.
fn links_through(count: usize, faults: Faults, seed: u64) -> impl Setup<Rail = Link<'static, Rail, Crc32c>> {
    sealed_through(count, faults, seed, Encrypt::Off)
}

fn sealed_through(
    count: usize,
    faults: Faults,
    seed: u64,
    encrypt: Encrypt,
) -> impl Setup<Rail = Link<'static, Rail, Crc32c>> {
    let relays: Vec<_> = (0..8).map(|link| Rc::new(RefCell::new(LossyNetwork::new(4, faults, seed + link)))).collect();
    let turns = relays.clone();
    let make = move |rank, link: u8| {
        let mut relay = relays[usize::from(link)].borrow_mut();
        let mut config = config(rank, link);
        config.datagram_bytes = 4000;
        config.encrypt = encrypt;
        config.advertise = Some(relay.address(rank as usize));
        let rail = Rail::new(config).expect("this host has a loopback");
        relay.connect(rank as usize, rail.address());
        linked(rail, rank, link)
    };
    SocketSetup::new(make, handle)
        .with_longest_header(LINKED_HEAD)
        .with_links(count)
        .with_network(move || turns.iter().for_each(|relay| relay.borrow_mut().forward_all()))
}

mod defaults {
    use super::*;
    rail_suite!(lossy udp(|_| {}));
}

/// One datagram for each call, all datagrams signed, small buffers, and rare polls of the socket.
mod plain {
    use super::*;
    rail_suite!(lossy udp(|config| {
        config.segmentation = false;
        config.sign = Some(true);
        config.datagram_bytes = 1400;
        config.send_staging_bytes = 1;
        config.send_queue_frames = 4;
        config.frames_at_once = 0;
        config.frames_kept = 1;
        config.idle_interval_polls = 7;
    }));
}

/// IPv6, with a limited rate.
mod ipv6_paced {
    use super::*;
    rail_suite!(lossy udp(|config| {
        config.filter.include = vec!["::1".into()];
        config.pacing_megabytes_per_second = 100;
    }));
}

/// All datagrams encrypted, and none longer than the path MTU.
mod sealed {
    use super::*;
    rail_suite!(lossy udp(|config| {
        config.encrypt = Encrypt::Always;
        config.datagram_bytes = 1400;
        config.send_queue_frames = 4;
        config.frames_kept = 1;
    }));
}

/// Sessions are established over a network that loses every third datagram, and duplicates, reorders and corrupts many.
/// Signed or encrypted frames that arrive are intact.
#[test]
fn sessions_are_established_over_a_bad_network() {
    for seed in 0..20 {
        let faults = Faults { lose: 333, duplicate: 200, delay: 300, corrupt: 100 };
        let relay = Rc::new(RefCell::new(LossyNetwork::new(3, faults, seed)));
        let mut mesh = Mesh::new(through(Rc::clone(&relay), [Encrypt::Off, Encrypt::Always][seed as usize % 2]), 3);
        let (bytes, pairs) = (patterned(seed, 40), [(0, 1), (1, 2), (2, 0)]);
        let shape = Shape { tag: 0x80, lane: Lane::Eager, header: 8, len: 40 };
        mesh.until("each end receives a frame", |mesh| {
            for (from, to) in pairs {
                let sent = mesh.try_send(from, to, shape, &bytes);
                assert!(matches!(sent, Ok(_) | Err(SendError::Busy)), "seed {seed}: {sent:?}");
            }
            mesh.ends.iter().all(|end| !end.received.is_empty())
        });
        assert!(
            mesh.ends.iter().flat_map(|end| &end.received).all(|got| got.bytes == bytes),
            "seed {seed}: a corrupt frame was delivered"
        );
        assert!(relay.borrow().done.iter().all(|done| *done > 0), "seed {seed}: a kind of fault did not happen");
    }
}

mod link_defaults {
    use super::*;
    rail_suite!(links(1, |_| {}));
}

mod link_plain {
    use super::*;
    rail_suite!(links(1, |config| {
        config.segmentation = false;
        config.datagram_bytes = 1400;
        config.send_queue_frames = 4;
        config.frames_kept = 1;
        config.socket_receive_buffer_bytes = 32 * 1024; // much of a flood is lost
    }));
}

mod link_lossy {
    use super::*;
    rail_suite!(links_through(1, Faults { lose: 50, duplicate: 20, delay: 50, corrupt: 20 }, 1));
}

/// Encrypted links over a network that loses, duplicates, reorders and corrupts datagrams.
mod link_sealed {
    use super::*;
    rail_suite!(sealed_through(1, Faults { lose: 50, duplicate: 20, delay: 50, corrupt: 20 }, 3, Encrypt::Always));
}

mod mtl {
    use super::*;
    matching_suite!(links(1, |_| {}));
}

mod mtl_lossy_three_links {
    use super::*;
    matching_suite!(links_through(3, Faults { lose: 50, duplicate: 20, delay: 50, corrupt: 20 }, 7));
}
