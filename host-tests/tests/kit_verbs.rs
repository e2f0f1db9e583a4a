//! The kits over verbs rails, each on a device of its own: for the virtual machine (`host-tests/scripts/verbs`), or whoever has
//! devices `rxe0` to `rxe3`.

use std::os::fd::AsFd;

use towline_core::arena::Arena;
use towline_core::btl::link::{self, Crc32c, Link};
use towline_core::btl::{Endpoint, LINKED_HEAD, Lane, Lost, Rail as _, SendError, Shape};
use towline_host_tests::kit::bench::{Bench, Setup, peer};
use towline_host_tests::kit::sockets::Sockets;
use towline_host_tests::{mtl_suite, rail_suite};
use towline_tcp::JobKey;
use towline_verbs::{Config, Rail};

fn make(rank: u32, link: u8, change: fn(&mut Config)) -> Rail {
    let mut config = Config::new(0x51, rank, JobKey::new([0x17; 32]));
    config.link = link;
    config.devices = vec![format!("rxe{rank}")];
    change(&mut config);
    Rail::new(config).expect("the machine has devices")
}

fn verbs(change: fn(&mut Config)) -> impl Setup<Rail = Rail> {
    Sockets::new(move |rank, link| make(rank, link, change), Rail::as_fd)
}

fn links(count: usize, change: fn(&mut Config)) -> impl Setup<Rail = Link<'static, Rail, Crc32c>> {
    let make = move |rank: u32, link| {
        let raw = make(rank, link, change);
        let settings = link::Config::new(link, u64::from(rank) + 1, raw.attributes());
        let settings = link::Config { peers: 4, ..settings };
        let room = vec![0; settings.bytes(&raw)].leak();
        Link::new(raw, Crc32c, settings, &mut Arena::new(room)).expect("room for all tables")
    };
    Sockets::new(make, |link: &Link<'static, Rail, Crc32c>| link.raw().as_fd()).headers(LINKED_HEAD).linked(count)
}

/// Little room everywhere, so that every check fills it.
fn small(config: &mut Config) {
    config.eager_limit_bytes = 700;
    config.rendezvous_eager_limit_bytes = 700;
    config.max_send_size_bytes = 9000;
    config.inline_bytes = 0;
    config.receive_buffers = 8;
    config.eager_buffers = 8;
    config.bulk_buffers = 2;
    config.send_queue_frames = 4;
    config.signal_every = 2;
    config.path_mtu_bytes = 1024;
}

mod defaults {
    use super::*;
    rail_suite!(verbs(|_| {}));
}

mod tight {
    use super::*;
    rail_suite!(verbs(small));
}

mod mtl {
    use super::*;
    mtl_suite!(verbs(|_| {}));
}

mod mtl_two_links {
    use super::*;
    mtl_suite!(links(2, small));
}

/// A queue pair in its error state ends that connection at both ends, for no other reason than that it broke; others go on, and
/// the peer is reached again once it was added again.
#[test]
fn a_queue_pair_that_fails_is_lost_at_both_ends_and_comes_back() {
    let mut bench = Bench::new(verbs(|_| {}), 3);
    let exchange = |bench: &mut Bench<_>, from: usize, to: usize| {
        bench.ends.iter_mut().for_each(|end| end.got.clear());
        bench.send(from, to, Lane::Eager, 0x80, 8, b"in order");
        bench.until("a frame", |bench| !bench.ends[to].got.is_empty());
    };
    for turn in 0..3 {
        for (from, to) in [(0, 1), (1, 2), (2, 0)] {
            exchange(&mut bench, from, to);
        }
        let to = bench.ends[0].to[1];
        bench.ends[0].rail.break_down(to);
        bench.until("both ends are told", |bench| bench.ends[..2].iter().all(|end| !end.lost.is_empty()));
        bench.settle();
        assert_eq!(bench.ends[0].lost, [(peer(1), Lost::Broken)], "turn {turn}");
        assert_eq!(bench.ends[1].lost, [(peer(0), Lost::Broken)], "turn {turn}");
        let shape = Shape { tag: 0x80, lane: Lane::Eager, header: 0, len: 1 };
        assert_eq!(bench.try_send(0, 1, shape, b"x"), Err(SendError::Unreachable));
        exchange(&mut bench, 0, 2);
        exchange(&mut bench, 2, 1);
        assert!(bench.ends[2].lost.is_empty());
        let (one, other) = (bench.ends[0].to[1], bench.ends[1].to[0]);
        bench.ends[0].rail.del_peer(one);
        bench.ends[1].rail.del_peer(other);
        bench.introduce(0, 1);
        bench.introduce(1, 0);
        bench.ends.iter_mut().for_each(|end| end.lost.clear());
    }
}

/// A link over queue pairs that fail again and again, in the middle of traffic both ways: it connects anew, and each frame
/// arrives once.
#[test]
fn a_link_carries_each_frame_once_over_queue_pairs_that_fail() {
    let mut bench = Bench::new(links(1, |_| {}), 2);
    let count = 600u64;
    let mut sent = [0u64; 2];
    let mut broken = 0;
    bench.until("all are sent", |bench| {
        for (from, sent) in sent.iter_mut().enumerate() {
            let shape = Shape { tag: 0x80, lane: Lane::Eager, header: 8, len: 3000 };
            let bytes = [&sent.to_le_bytes()[..], &[*sent as u8; 2992]].concat();
            if *sent < count && bench.try_send(from, 1 - from, shape, &bytes).is_ok() {
                *sent += 1;
            }
        }
        // The only peer of a rail is its first endpoint.
        if bench.ends[1].got.len() as u64 > 150 * (broken + 1) && broken < 3 {
            bench.ends[0].rail.raw().break_down(Endpoint(0));
            broken += 1;
        }
        sent == [count; 2]
    });
    bench.until("all have arrived", |bench| bench.ends.iter().all(|end| end.got.len() as u64 >= count));
    bench.settle();
    assert_eq!(broken, 3);
    assert!(bench.ends.iter().all(|end| end.rail.raw().counters().lost >= 3), "the queue pairs did not fail");
    for end in &mut bench.ends {
        let mut seen: Vec<u64> = vec![];
        for got in &end.got {
            let number = u64::from_le_bytes(got.bytes[..8].try_into().unwrap());
            assert!(
                got.bytes.len() == 3000 && got.bytes[8..].iter().all(|byte| *byte == number as u8),
                "frame {number}"
            );
            seen.push(number);
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..count), "each once");
    }
}

/// Short frames go within their work request, and the device tells of every eighth only.
#[test]
fn short_frames_are_inline_and_few_are_told_of() {
    let mut bench = Bench::new(verbs(|config| (config.inline_bytes, config.signal_every) = (64, 8)), 2);
    for _ in 0..160 {
        bench.send(0, 1, Lane::Eager, 0x80, 8, &[7; 64]);
        bench.send(0, 1, Lane::Eager, 0x80, 8, &[7; 65]);
        bench.until("both", |bench| bench.ends[1].got.len() >= 2);
        bench.ends[1].got.clear();
    }
    let counters = *bench.ends[0].rail.counters();
    assert_eq!((counters.inline, counters.signaled + counters.unsignaled), (160, 320));
    assert!(counters.signaled <= 320 / 8 + 1, "{counters:?}");
    let to = bench.ends[0].to[1];
    bench.until("what is not told of is asked for", |bench| bench.ends[0].rail.drained(to));
}
