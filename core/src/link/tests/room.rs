//! Tests with a rail below that has no room, for a moment or as long as a peer is stalled.

use super::mesh::{Mesh, bytes};
use super::wire::Faults;
use crate::rail::*;
use crate::time::Instant;
use std::vec;

const MILLISECOND: u64 = 1_000_000;
/// How long acknowledgements wait, and the shortest time after which a refused frame is tried again.
const MOMENT: u64 = 25_000;

/// Sends a frame by a grant. The link takes it even if the rail below has no room.
fn commit(mesh: &mut Mesh, from: usize, to: usize, frame: &[u8]) {
    let shape = Shape { tag: frame[0] | 0x80, lane: Lane::Eager, header: 8, len: frame.len() as u32 };
    let end = &mut mesh.ends[from];
    let mut grant = end.link.reserve(end.to[to], shape).unwrap();
    grant.write(0, frame);
    let ticket = grant.finish();
    end.link.commit(ticket);
}

/// Polls an end whenever something is due there, for `nanos` nanoseconds. Returns how many times it was due, and how many times
/// the link did not let its caller sleep.
fn poll_when_due(mesh: &mut Mesh, end: usize, nanos: u64) -> (u32, u32) {
    let (until, mut times, mut awake) = (mesh.now + nanos, 0, 0);
    while mesh.now < until {
        while mesh.poll(end) {}
        awake += u32::from(!mesh.ends[end].link.arm());
        let due = mesh.ends[end].link.poll_at().map_or(until, Instant::as_nanos);
        (mesh.now, times) = (due.max(mesh.now + 1), times + 1);
    }
    (times, awake)
}

/// Ends that are connected.
fn connected(count: usize) -> Mesh {
    let mut mesh = Mesh::new(count, 1, Faults::default(), |_| {});
    for peer in 1..count {
        mesh.send(0, peer, Lane::Eager, &bytes(0, 100));
        mesh.send(peer, 0, Lane::Eager, &bytes(0, 100));
    }
    mesh.settle();
    mesh
}

/// The rail below has no room, as if the peer were stalled. A caller that sleeps until something is due must not be woken every
/// few microseconds, and must not be kept from sleeping, whether an acknowledgement or a frame waits.
#[test]
fn p3_b34_a_full_rail_below_is_tried_ever_less_often() {
    for owes_ack in [true, false] {
        let mut mesh = connected(2);
        if owes_ack {
            mesh.send(0, 1, Lane::Eager, &bytes(1, 100));
            while mesh.ends[1].got.len() < 2 {
                mesh.poll(1);
                mesh.now += 100;
            }
        }
        mesh.faults(|faults| faults.busy = 1000);
        if !owes_ack {
            commit(&mut mesh, 1, 0, &bytes(1, 100));
        }
        let (times, awake) = poll_when_due(&mut mesh, 1, 100 * MILLISECOND);
        assert!(times < 200, "{times} times in 100 ms");
        assert_eq!(awake, 0, "of {times} times, the caller was kept from sleeping");
        mesh.faults(|faults| faults.busy = 0);
        mesh.settle();
        let mut connecting = Mesh::new(2, 1, Faults { busy: 1000, ..Faults::default() }, |_| {});
        let (times, _) = poll_when_due(&mut connecting, 1, 100 * MILLISECOND);
        assert!(times < 200, "{times} hellos in 100 ms");
        let (from, to) = if owes_ack { (0, 1) } else { (1, 0) };
        mesh.check(from, to, vec![0, 1]);
    }
}

/// However long the link was idle, and however often the caller polls, a rail that has no room for a moment is tried again after
/// a moment.
#[test]
fn p3_b34_after_a_first_refusal_the_link_waits_for_a_moment() {
    let mut mesh = connected(2);
    for _ in 0..20 {
        mesh.poll(0);
    }
    mesh.faults(|faults| faults.busy = 1000);
    commit(&mut mesh, 0, 1, &bytes(1, 100));
    for _ in 0..20 {
        mesh.poll(0);
    }
    let due = mesh.ends[0].link.poll_at().map_or(u64::MAX, Instant::as_nanos);
    assert!(due <= mesh.now + MOMENT, "after {} ns", due - mesh.now);
    mesh.faults(|faults| faults.busy = 0);
    mesh.settle();
    mesh.check(0, 1, vec![0, 1]);
}

/// The rail below may make room when it is polled, as when a socket takes the bytes that were left over. The link uses the room
/// at once, since the rail does not wake the caller a second time.
#[test]
fn p3_b34_a_poll_uses_the_room_that_it_frees() {
    let mut mesh = connected(2);
    mesh.shared.borrow_mut().full = vec![1];
    commit(&mut mesh, 0, 1, &bytes(1, 100));
    poll_when_due(&mut mesh, 0, 100 * MILLISECOND);
    while mesh.poll(0) {}
    let (sent, at) = (mesh.ends[0].link.counters().sent, mesh.now + 100);
    mesh.shared.borrow_mut().room_at = Some(at);
    assert!(mesh.ends[0].link.poll_at().is_some_and(|due| due.as_nanos() == at));
    mesh.now = at;
    while mesh.poll(0) {}
    assert_eq!(mesh.ends[0].link.counters().sent, sent + 1);
    mesh.settle();
    mesh.check(0, 1, vec![0, 1]);
}

/// Many peers are stalled, and one of them goes on. Its frames do not wait for a turn of each other peer.
#[test]
fn p3_b34_of_many_peers_without_room_one_with_room_is_found_at_once() {
    const PEERS: usize = 20;
    let mut mesh = connected(PEERS + 1);
    for lucky in [3, 17] {
        let number = mesh.ends[lucky].got.len() as u64;
        mesh.shared.borrow_mut().full = (1..=PEERS).collect();
        for peer in 1..=PEERS {
            commit(&mut mesh, 0, peer, &bytes(number, 100));
        }
        let (times, awake) = poll_when_due(&mut mesh, 0, 100 * MILLISECOND);
        assert!(times < 1000 && awake < times, "{times} times in 100 ms, {awake} of them awake");
        mesh.shared.borrow_mut().full.retain(|peer| *peer != lucky);
        let left = mesh.ends[0].link.counters().resent + mesh.ends[0].link.counters().sent;
        poll_when_due(&mut mesh, 0, 8 * MILLISECOND);
        let now = mesh.ends[0].link.counters().resent + mesh.ends[0].link.counters().sent;
        assert!(now > left, "peer {lucky}");
        mesh.shared.borrow_mut().full.clear();
        mesh.settle();
        (1..=PEERS).for_each(|peer| assert_eq!(mesh.ends[peer].got.len() as u64, number + 1));
    }
}

/// A stalled peer, to which there is no room for acknowledgements, does not delay acknowledgements to others.
#[test]
fn p3_p15_a_peer_without_room_delays_no_acknowledgements_to_others() {
    let mut mesh = connected(3);
    mesh.shared.borrow_mut().full = vec![1];
    for number in 1..50 {
        if number < 4 {
            mesh.send(1, 0, Lane::Eager, &bytes(number, 100));
        }
        mesh.pass(MILLISECOND);
        mesh.send(2, 0, Lane::Eager, &bytes(number, 100));
        mesh.pass(2 * MOMENT);
        assert!(mesh.ends[2].link.drained(mesh.ends[2].to[0]), "frame {number} is not acknowledged");
    }
    let counters = *mesh.ends[2].link.counters();
    assert_eq!((counters.resent, counters.timeouts), (0, 0));
    mesh.shared.borrow_mut().full.clear();
    mesh.settle();
    mesh.check(1, 0, vec![0, 1, 2, 3]);
    mesh.check(2, 0, (0..50).collect());
}
