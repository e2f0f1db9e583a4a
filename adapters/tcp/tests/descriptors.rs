//! A pipe takes two descriptors. Without descriptors bodies are copied, and connections have precedence. This file has one test,
//! since the limit belongs to the process.

mod common;

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};

use common::*;
use towline_core::convertor::Span;
use towline_core::rail::{Cookie, Endpoint, Event, Lane, Peer, Rail as _, Shape};
use towline_core::time::Duration;

/// Sets the limit so that no descriptor is left, and returns the old limit.
fn exhaust() -> libc::rlimit {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the arguments are plain numbers. The new descriptor is the lowest free one, so all below it are in use.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut before), 0);
        let free = libc::dup(0);
        assert!(free >= 0);
        libc::close(free);
        let limit = libc::rlimit { rlim_cur: free as libc::rlim_t, ..before };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
    before
}

fn restore(limit: libc::rlimit) {
    // SAFETY: the argument is plain numbers.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

/// Sends a long body with a checksum, and checks that it arrives unchanged.
fn exchange(world: &mut World, to: Endpoint, stream: &mut std::net::TcpStream) {
    let body: Vec<u8> = (0..200_000).map(|at| (at * 7 + at / 251) as u8).collect();
    let shape = Shape { tag: TAG, lane: Lane::Bulk, header: 0, len: body.len() as u32 };
    // SAFETY: the body lives until all of it was read.
    unsafe { world.rails[0].send_summed(to, shape, &[], Span::of(&body), Cookie(1)) }.expect("room");
    stream.set_nonblocking(true).unwrap();
    let (mut got, mut room) = (vec![], [0; 50_000]);
    while got.len() < 8 + body.len() {
        assert!(world.rails[0].poll(world.now).is_none_or(|event| matches!(event, Event::Sent(_))));
        if let Ok(count) = stream.read(&mut room) {
            got.extend_from_slice(&room[..count]);
        }
    }
    assert!(got[8..] == body);
}

#[test]
fn without_descriptors_bodies_are_copied_and_connections_come_first() {
    let mut world = World::new(vec![rail(0)]);
    let mut join = |rank| {
        let peer = ManualPeer::new(rank);
        let card = peer.card(&[address(&world.rails[0])], &world.rails[0]);
        (world.rails[0].add_peer(Peer(rank), &card).unwrap(), peer.join(&mut world, 0))
    };
    let [one, mut other] = [1, 2].map(&mut join);
    let (to, mut stream) = one;
    let before = exhaust();
    for times in 1..3 {
        exchange(&mut world, to, &mut stream);
        let counters = world.rails[0].counters();
        assert_eq!([counters.pipe_refused, counters.spliced_bytes], [times, 0]);
    }
    restore(before);
    exchange(&mut world, other.0, &mut other.1);
    assert_eq!(world.rails[0].counters().spliced_bytes, 0, "no pipe is made before a connection has ended");
    drop(stream);
    world.until("the loss", |world| world.observed[0].iter().any(|seen| matches!(seen, Observed::Lost(Peer(1), _))));
    exchange(&mut world, other.0, &mut other.1);
    assert!(world.rails[0].counters().spliced_bytes > 0, "a pipe is made again");

    // A connection is to be made while the only free descriptors are those of the pipe.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let card = ManualPeer::new(3).card(&[listener.local_addr().unwrap()], &world.rails[0]);
    let third = world.rails[0].add_peer(Peer(3), &card).unwrap();
    let before = exhaust();
    assert!(!try_send(&mut world.rails[0], third, b"connect").unwrap());
    let mut call = None;
    world.until("a call", |world| {
        world.now = world.now + Duration::from_millis(100);
        call = listener.accept().ok();
        call.is_some()
    });
    restore(before);
    assert_ne!(world.rails[0].counters().out_of_descriptors, 0);
    let copied = world.rails[0].counters().pipe_refused;
    exchange(&mut world, other.0, &mut other.1);
    assert_eq!(world.rails[0].counters().pipe_refused, copied + 1, "the pipe was given up for the connection");
}
