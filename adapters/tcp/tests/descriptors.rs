//! A pipe takes two descriptors: without them bodies are copied, and connections need them more. One test alone, since the
//! limit is the process's.

mod common;

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};

use common::*;
use towline_core::convertor::Span;
use towline_core::rail::{Cookie, Endpoint, Event, Lane, Peer, Rail as _, Shape};
use towline_core::time::Duration;

/// Sets the limit so that no descriptor is left; returns what it was.
fn exhaust() -> libc::rlimit {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain numbers; the descriptor is the lowest that is free, so all below are in use.
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
    // SAFETY: plain numbers.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

/// Sends a long summed body, which has to come unchanged.
fn exchange(world: &mut World, to: Endpoint, stream: &mut std::net::TcpStream) {
    let body: Vec<u8> = (0..200_000).map(|at| (at * 7 + at / 251) as u8).collect();
    let shape = Shape { tag: TAG, lane: Lane::Bulk, header: 0, len: body.len() as u32 };
    // SAFETY: the body stays until all of it was read.
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
        let hand = Hand::new(rank);
        let card = hand.card(&[address(&world.rails[0])], &world.rails[0]);
        (world.rails[0].add_peer(Peer(rank), &card).unwrap(), hand.join(&mut world, 0))
    };
    let [one, mut other] = [1, 2].map(&mut join);
    let (to, mut stream) = one;
    let before = exhaust();
    for times in 1..3 {
        exchange(&mut world, to, &mut stream);
        let counters = world.rails[0].counters();
        assert_eq!([counters.pipe_refused, counters.uncopied_bytes], [times, 0]);
    }
    restore(before);
    exchange(&mut world, other.0, &mut other.1);
    assert_eq!(world.rails[0].counters().uncopied_bytes, 0, "none is to be had before a connection has ended");
    drop(stream);
    world.until("the loss", |world| world.seen[0].iter().any(|seen| matches!(seen, Seen::Lost(Peer(1), _))));
    exchange(&mut world, other.0, &mut other.1);
    assert!(world.rails[0].counters().uncopied_bytes > 0, "there are descriptors again");

    // The next one is to be connected to, and there is no descriptor but those of the pipe.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let card = Hand::new(3).card(&[listener.local_addr().unwrap()], &world.rails[0]);
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
    assert_eq!(world.rails[0].counters().pipe_refused, copied + 1, "it was given up for that");
}
