//! Frames of a hostile peer: they are counted, access no memory, and end no operation of other peers.

use std::{boxed::Box, vec};

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::basic::{Engine, WIDE, from, memory, pending, recv, send};
use crate::arena::Arena;
use crate::pml::*;
use crate::pool::Handle;
use crate::rail::loopback::{self, Hub};
use crate::rail::{Endpoint, Event, Lane, Peer, Rail, Shape};
use crate::time::Instant;
use crate::wire;

/// An engine, and the bare rails of its peers 1 and 2.
fn among_strangers() -> (Engine, [loopback::Rail<'static>; 2]) {
    let hub = Hub::new(&mut Arena::new(memory(Hub::cost(3, 64, 512))), 3, 64, 512).unwrap();
    let hub: &'static Hub<'static> = Box::leak(Box::new(hub));
    let config = Config { unexpected: 8, units: 8, first_sequence: 0, ..WIDE };
    let mut engine =
        Pml::new(config, &mut Arena::new(memory(config.bytes(&[&Hub::attributes(512)]))), [hub.rail(0).unwrap()])
            .unwrap();
    let params = engine.params();
    let strangers = [1u32, 2].map(|peer| {
        engine.add_peer(Peer(peer), &params, |_, rail| rail.add_peer(Peer(peer), &peer.to_le_bytes())).unwrap();
        let mut rail = hub.rail(peer).unwrap();
        rail.add_peer(Peer(0), &0u32.to_le_bytes()).unwrap();
        rail
    });
    (engine, strangers)
}

fn tell<H: IntoBytes + Immutable>(rail: &mut loopback::Rail<'_>, header: &H, body: &[u8]) {
    let len = size_of::<H>() + body.len();
    let shape = Shape { tag: crate::ptl::TAG, lane: Lane::Eager, header: size_of::<H>() as u8, len: len as u32 };
    let mut grant = rail.reserve(Endpoint(0), shape).unwrap();
    grant.write(0, header.as_bytes());
    grant.write(size_of::<H>(), body);
    let ticket = grant.finish();
    rail.commit(ticket);
}

/// The next header that a bare rail has received.
fn heard<H: FromBytes>(rail: &mut loopback::Rail<'_>) -> H {
    let Some(Event::Frame(frame)) = rail.poll(Instant::ZERO) else { panic!("nothing came") };
    H::read_from_prefix(frame.head()).unwrap().0
}

/// A hostile peer sends handles that are stale, forged, or of another peer's request, offsets beyond the limit, numbers from the
/// past, and messages beyond its credit. Each frame is counted, and none accesses memory.
#[test]
fn p22_forged_handles_and_credit_violations_are_counted_and_touch_nothing() {
    let (mut engine, [mut liar, mut honest]) = among_strangers();
    // A long receive that peer 2 is about to fill.
    let mut into = vec![0xaa; 1000];
    let receive = recv(&mut engine, from(2, 5), &mut into);
    tell(&mut honest, &wire::Rendezvous::new(1, 5, 0, Handle::from_bits(1 << 32 | 77), 1000), &[]);
    engine.progress(Instant::ZERO);
    let ack: wire::Ack = heard(&mut honest);
    assert_eq!((ack.sender.get(), ack.wanted.get()), (1 << 32 | 77, 1000));
    let handle = ack.receiver.get();

    let mut stale = 0;
    for forged in [handle, handle ^ 1, handle.wrapping_add(1 << 32), 0, u64::MAX] {
        tell(&mut liar, &wire::Fragment::new(forged, 0), &[0x55; 100]); // not the liar's receive
        let mut abort = wire::Fragment::new(forged, 0);
        abort.common.flags = wire::FLAG_ABORT;
        tell(&mut liar, &abort, &[]);
        tell(&mut liar, &wire::Ack::new(forged, Handle::NONE, 10), &[]);
        tell(&mut liar, &wire::Finish::new(forged), &[]);
        tell(&mut liar, &wire::Reject::new(forged, wire::Reason::NotReady), &[]);
        stale += 5;
    }
    for (offset, len) in [(990, 11), (1001, 1), (u64::MAX, 2)] {
        tell(&mut honest, &wire::Fragment::new(handle, offset), &vec![0x55; len]);
        stale += 1;
    }
    tell(&mut liar, &wire::Nothing::new(3), &[]);
    stale += 1;
    (0..100).for_each(|_| {
        engine.progress(Instant::ZERO);
    });
    assert_eq!(engine.counters().stale, stale);
    assert!(into.iter().all(|byte| *byte == 0xaa));

    // Beyond its credit of two messages, and a number from the past.
    for sequence in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0] {
        tell(&mut liar, &wire::Match::new(1, 9, sequence), &[1, 2, 3]);
    }
    // Frames that are malformed.
    tell(&mut liar, &[0u8; 24], &[]);
    tell(&mut liar, &[0x2fu8; 40], &[]);
    tell(&mut liar, &wire::Finish::new(1), &[9]);
    (0..100).for_each(|_| {
        engine.progress(Instant::ZERO);
    });
    assert_eq!((engine.counters().credit_violations, engine.counters().malformed), (9, 3));
    assert_eq!(engine.used()[1], 2); // its share of 8: the credit of others is untouched

    // The receive is unharmed.
    tell(&mut honest, &wire::Fragment::new(handle, 400), &[0x33; 400]);
    tell(&mut honest, &wire::Fragment::new(handle, 800), &[0x33; 200]);
    tell(&mut honest, &wire::Fragment::new(handle, 0), &[0x33; 400]);
    (0..100).for_each(|_| {
        engine.progress(Instant::ZERO);
    });
    assert_eq!(engine.test(receive).map(|outcome| outcome.unwrap().delivered), Some(1000));
    assert!(into.iter().all(|byte| *byte == 0x33));
}

/// Only an answer may be sent back. A send that is no answer has its place at the receiver. So it ignores such a reject, and
/// waits until the receiver decides, as it does if the receiver sends nothing.
#[test]
fn p22_p27_a_send_that_is_no_answer_is_not_sent_back() {
    let (mut engine, [mut liar, _]) = among_strangers();
    let waiting = pending(send(&mut engine, 1, 5, Mode::Synchronous, &[1]));
    let handle = heard::<wire::Rendezvous>(&mut liar).sender.get();
    for _ in 0..3 {
        tell(&mut liar, &wire::Reject::new(handle, wire::Reason::Unmatched), &[]);
    }
    (0..10).for_each(|_| {
        engine.progress(Instant::ZERO);
    });
    assert_eq!((engine.counters().stale, engine.counters().rejects_received), (3, 0));
    assert_eq!(engine.test(waiting), None);
    assert!(liar.poll(Instant::ZERO).is_none()); // it is not sent again
    tell(&mut liar, &wire::Finish::new(handle), &[]);
    engine.progress(Instant::ZERO);
    assert!(matches!(engine.test(waiting), Some(Ok(_))));
}

/// Rails may let frames overtake each other: a short message waits for the earlier ones, even if its receive is posted and
/// nothing else prevents the delivery.
#[test]
fn m10_p25_a_short_message_waits_for_those_before_it() {
    let (mut engine, [_, mut honest]) = among_strangers();
    let mut into = [0; 8];
    let first = recv(&mut engine, from(2, 5), &mut into);
    tell(&mut honest, &wire::Match::new(1, 5, 1), b"second");
    engine.progress(Instant::ZERO);
    assert_eq!((engine.test(first), engine.counters().out_of_order), (None, 1));
    tell(&mut honest, &wire::Match::new(1, 5, 0), b"first");
    engine.progress(Instant::ZERO);
    assert_eq!(engine.test(first).map(|outcome| outcome.unwrap().delivered), Some(5));
    assert_eq!(&into[..5], b"first");
    let second = recv(&mut engine, from(2, 5), &mut into);
    assert_eq!(engine.test(second).map(|outcome| outcome.unwrap().delivered), Some(6));
    assert_eq!(&into[..6], b"second");
}
