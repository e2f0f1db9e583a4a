//! Frames that are missing among unread ones, and frames that were refused: how soon they arrive.

use super::hostile::own;
use super::mesh::{Mesh, bytes};
use super::wire::{Faults, wires};
use crate::link::congestion::CongestionWindow;
use crate::link::header::Kind;
use crate::rail::*;
use crate::time::Instant;
use std::{vec, vec::Vec};

/// The time that a packet takes in one direction.
const WAY: u64 = 200_000;
const TRIP: u64 = 2 * WAY;
/// How late a body may be.
const LATE: u64 = 20_000;
const LEN: usize = 400;

/// Ends that know the round trip to the first one. Their rails hold `held` frames, and their links take `deliveries` more.
fn connected(count: usize, held: u32, deliveries: u32) -> (Mesh, u64) {
    let faults = Faults { delay: WAY - 1000, ..Faults::default() };
    let mut wires = wires(count, 1, faults, true);
    wires.iter_mut().for_each(|wire| wire.keeps(held));
    let mut mesh = Mesh::with(wires, 1, |config| config.deliveries = deliveries);
    for number in 0..100 {
        for (from, to) in (1..count).flat_map(|peer| [(0, peer), (peer, 0)]) {
            mesh.send(from, to, Lane::Eager, &bytes(number, 30));
        }
        mesh.pass(20_000);
    }
    mesh.settle();
    mesh.poll(0); // so that the wire knows the time
    (mesh, 100)
}

/// Sends `count` frames at once.
fn burst(mesh: &mut Mesh, from: usize, to: usize, first: u64, count: u64) {
    for number in first..first + count {
        assert!(mesh.try_send(from, to, Lane::Bulk, &bytes(number, LEN)).is_ok());
    }
}

/// Polls two ends until the reader of the second one has got `count` frames. It keeps all of them.
fn keep(mesh: &mut Mesh, count: usize) -> Vec<Frame> {
    let mut kept = vec![];
    for _ in 0..1_000_000 {
        while mesh.poll(0) {}
        while let Some(event) = mesh.ends[1].link.poll(Instant::from_nanos(mesh.now)) {
            let Event::Frame(frame) = event else { panic!("{event:?}") };
            kept.push(frame);
        }
        if kept.len() >= count {
            return kept;
        }
        let next = mesh.ends.iter().filter_map(|end| end.link.poll_at()).map(Instant::as_nanos).min();
        mesh.now = next.unwrap_or(mesh.now + 1000).max(mesh.now + 1);
    }
    panic!("{} of {count}: {:?}", kept.len(), mesh.ends[0].link.counters());
}

/// How many nacks were sent.
fn asked(mesh: &Mesh) -> u64 {
    let is_wanted = |tag: u8, frame: &[u8]| tag == 0x11 && frame[12] == Kind::Nack as u8;
    mesh.shared.borrow().log.iter().filter(|(_, tag, frame)| is_wanted(*tag, frame)).count() as u64
}

/// Nothing is acknowledged, since the reader keeps all frames. The first tail loss probe is answered by a negative
/// acknowledgement.
#[test]
fn p15_b9_frames_missing_among_unread_ones_are_resent_a_round_trip_after_one_timeout() {
    for lost in [vec![15], vec![3, 9, 20], (5..25).collect()] {
        let (mut mesh, sent) = connected(2, 64, 4);
        mesh.shared.borrow_mut().victims = lost.iter().map(|place| (sent + place, 1)).collect();
        let start = mesh.now;
        burst(&mut mesh, 0, 1, sent, 30);
        let kept = keep(&mut mesh, 30);
        let took = mesh.now - start;
        assert!(took < 4 * TRIP, "{lost:?} took {took} ns");
        let counters = *mesh.ends[0].link.counters();
        assert_eq!((counters.timeouts, counters.resent), (1, lost.len() as u64 + 2), "and what it asked with");
        for frame in kept {
            mesh.ends[1].take(Event::Frame(frame), 1);
        }
        mesh.settle();
        mesh.check(0, 1, (0..sent + 30).collect());
    }
}

/// Refused frames are asked for when there is room, for as many as there is room for. Each is sent once more, a round trip
/// later.
#[test]
fn p15_b34_refused_frames_are_resent_as_there_is_room_and_not_after_timeouts() {
    for (held, deliveries, trips) in [(1, 1, 32), (1, 4, 12), (4, 8, 5)] {
        let (mut mesh, sent) = connected(2, held, deliveries);
        mesh.faults(|faults| faults.late_body = 1000);
        let start = mesh.now;
        burst(&mut mesh, 0, 1, sent, 30);
        mesh.settle();
        let took = mesh.now - start;
        assert!(took < trips * (TRIP + LATE), "{took} ns with room for {held} and {deliveries}");
        let [one, other] = [0, 1].map(|end| *mesh.ends[end].link.counters());
        assert!(other.no_room >= 10, "{other:?}");
        assert_eq!(one.timeouts, 0, "with room for {held} and {deliveries}");
        assert!(one.resent < 90, "{one:?}");
        assert!(asked(&mesh) <= 30, "once for each frame that made room: {}", asked(&mesh));
        mesh.check(0, 1, (0..sent + 30).collect());
    }
}

/// When frames of other peers free their room, each refused peer gets a nack in turn.
#[test]
fn p15_b34_free_room_is_reported_in_turn_to_peers_whose_frames_were_refused() {
    let (mut mesh, sent) = connected(5, 1, 1);
    mesh.faults(|faults| faults.late_body = 1000);
    for from in 1..5 {
        burst(&mut mesh, from, 0, sent, 10);
    }
    mesh.settle();
    for from in 1..5 {
        let counters = *mesh.ends[from].link.counters();
        assert!(counters.resent != 0 && counters.timeouts <= 2, "{from}: {counters:?}");
        mesh.check(from, 0, (0..sent + 10).collect());
    }
}

/// A negative acknowledgement may be lost, as any frame.
#[test]
fn p15_b34_without_nacks_timeouts_bring_refused_frames() {
    let (mut mesh, sent) = connected(2, 1, 1);
    mesh.faults(|faults| (faults.late_body, faults.lose_nacks) = (1000, true));
    burst(&mut mesh, 0, 1, sent, 30);
    mesh.settle();
    assert!(mesh.ends[0].link.counters().timeouts != 0);
    mesh.check(0, 1, (0..sent + 30).collect());
}

/// Whatever a peer asks for, no more frames are sent in a round trip than may be in flight, and none twice.
#[test]
fn p15_a_peer_that_asks_for_anything_gets_no_more_than_the_window_in_a_round_trip() {
    let (mut mesh, sent) = connected(2, 4, 8);
    burst(&mut mesh, 0, 1, sent, 40);
    let path = &mut mesh.ends[0].link.peers.paths[0];
    path.congestion = CongestionWindow::new(8, 256).with_timeouts(5);
    mesh.faults(|faults| faults.silent = true);
    let mut rest = vec![Kind::Nack as u8, 5];
    rest.extend((sent as u16 - 100).to_le_bytes());
    rest.extend([0xff; 40]);
    let asks = own(&mesh, 1, 0, sent, &rest);
    let flood = |mesh: &mut Mesh| {
        let before = mesh.ends[0].link.counters().resent;
        for _ in 0..50 {
            mesh.shared.borrow_mut().forge(1, 0, 0x11, &asks);
            mesh.poll(0);
        }
        mesh.ends[0].link.counters().resent - before
    };
    assert_eq!(flood(&mut mesh), 0, "all were just sent");
    mesh.now += TRIP + WAY;
    let resent = flood(&mut mesh);
    assert_eq!(resent, 8, "and there are 40");
    assert_eq!(mesh.ends[0].link.peers.paths[0].congestion.timeouts(), 0, "a peer that asks is not silent");
    assert_eq!(flood(&mut mesh), 0, "in the same round trip");
    mesh.faults(|faults| faults.silent = false);
    mesh.settle();
    mesh.check(0, 1, (0..sent + 40).collect());
}

/// A peer repeats a frame forever, which is unread here or refused. It is answered once in the delay of an acknowledgement.
#[test]
fn p15_b34_a_peer_that_repeats_a_frame_gets_no_more_nacks_than_acknowledgements() {
    const TIMES: u64 = 10_000;
    const DELAY: u64 = 25_000;
    for (held, deliveries, refused, spread) in [(64, 4, false, 0), (64, 4, false, 4 * DELAY), (1, 1, true, 0)] {
        let (mut mesh, sent) = connected(2, held, deliveries);
        mesh.shared.borrow_mut().victims = vec![(sent + 1, u32::MAX)];
        mesh.faults(|faults| faults.late_body = if refused { 1000 } else { 0 });
        burst(&mut mesh, 0, 1, sent, 3);
        let kept = if refused {
            while mesh.ends[1].link.counters().no_room == 0 {
                mesh.now = mesh.ends[1].link.poll_at().map_or(mesh.now, Instant::as_nanos).max(mesh.now);
                while mesh.poll(1) {}
            }
            vec![]
        } else {
            keep(&mut mesh, 2)
        };
        let last = |log: &[(usize, u8, Vec<u8>)]| {
            log.iter().rev().find(|(from, tag, _)| (*from, *tag != 0x11) == (0, true)).cloned()
        };
        let (_, tag, frame) = last(&mesh.shared.borrow().log).unwrap();
        mesh.now += if refused { 0 } else { DELAY };
        let said = |mesh: &Mesh| (asked(mesh), mesh.ends[1].link.counters().acks_sent);
        let counters = *mesh.ends[1].link.counters();
        let before = said(&mesh);
        for time in 0..TIMES {
            mesh.shared.borrow_mut().forge(0, 1, tag, &frame);
            assert!(mesh.ends[1].link.poll(Instant::from_nanos(mesh.now + time * spread / TIMES)).is_none());
        }
        let after = said(&mesh);
        let came = *mesh.ends[1].link.counters();
        let again = (came.duplicates - counters.duplicates).max(came.no_room - counters.no_room);
        assert_eq!(again, TIMES, "{came:?}");
        let most = 1 + spread / DELAY;
        let (notices, acks) = (after.0 - before.0, after.1 - before.1);
        assert!(notices <= most && acks <= most, "{notices} notices, {acks} acks in {spread} ns");
        assert!(refused || notices != 0, "they help");
        mesh.now += spread;
        mesh.shared.borrow_mut().victims.clear();
        for frame in kept {
            mesh.ends[1].take(Event::Frame(frame), 1);
        }
        mesh.settle();
        mesh.check(0, 1, (0..sent + 3).collect());
    }
}
