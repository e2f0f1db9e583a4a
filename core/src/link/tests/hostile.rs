//! Tests of hostile peers, which may send anything.

use super::mesh::{Mesh, bytes};
use super::wire::{Faults, Random};
use crate::link::Crc32c;
use crate::link::header::head_check;
use crate::rail::*;
use std::{vec, vec::Vec};

#[test]
fn p15_no_bytes_cause_a_panic_or_free_a_frame() {
    let mut random = Random(5);
    let mut mesh = Mesh::new(2, 1, Faults::default(), |_| {});
    for number in 0..10 {
        mesh.send(0, 1, Lane::Eager, &bytes(number, 5000));
    }
    mesh.settle();
    mesh.faults(|faults| faults.silent = true);
    for number in 10..15 {
        mesh.send(0, 1, Lane::Eager, &bytes(number, 40));
    }
    let kept = mesh.ends[0].link.used();
    for _ in 0..20_000 {
        let len = random.below(80) as usize;
        let frame: Vec<u8> = (0..len).map(|_| random.word() as u8).collect();
        let tag = [0x11, 0x12, 0x80, random.word() as u8][random.below(4) as usize];
        mesh.shared.borrow_mut().forge(1, 0, tag, &frame);
        mesh.poll(0);
    }
    assert_eq!(mesh.ends[0].link.used(), kept);
    assert!(mesh.ends[0].got.is_empty());
    mesh.faults(|faults| faults.silent = false);
    mesh.settle();
    mesh.check(0, 1, (0..15).collect());
}

/// A control frame as `from` would send it, with a right check.
pub fn own(mesh: &Mesh, from: usize, to: usize, ack: u64, rest: &[u8]) -> Vec<u8> {
    numbered(mesh, from, to, 0, ack, rest)
}

/// The same, with a full number that the check covers.
fn numbered(mesh: &Mesh, from: usize, to: usize, number: u64, ack: u64, rest: &[u8]) -> Vec<u8> {
    let path = mesh.ends[to].link.peers.paths.first().copied().unwrap();
    let mut frame = vec![0; 12];
    frame[..2].copy_from_slice(&(number as u16).to_le_bytes());
    frame[2..4].copy_from_slice(&(ack as u16).to_le_bytes());
    frame.extend(rest);
    let check = head_check(&Crc32c, path.session.seeds[1], 0x11, frame.len() as u32, [number, ack], &frame);
    frame[4..8].copy_from_slice(&check.to_le_bytes());
    assert_eq!(path.session.peer, from as u32 + 10);
    frame
}

#[test]
fn p15_acknowledgements_beyond_the_sent_frames_are_refused_whole() {
    let mut mesh = Mesh::new(2, 1, Faults::default(), |config| config.first_number = 5);
    for number in 0..3 {
        mesh.send(0, 1, Lane::Eager, &bytes(number, 40));
    }
    mesh.settle();
    mesh.faults(|faults| faults.silent = true);
    for number in 3..7 {
        mesh.send(0, 1, Lane::Eager, &bytes(number, 40));
    }
    // Numbers 8 to 11 are in flight; 12 would be the next.
    let bits = |from: u16, word: u64| {
        let mut rest = vec![2, 1];
        rest.extend(from.to_le_bytes());
        rest.extend(word.to_le_bytes());
        rest
    };
    let absurd = [
        own(&mesh, 1, 0, 13, &[2, 0, 0, 0]),
        own(&mesh, 1, 0, 30_000, &[2, 0, 0, 0]),
        own(&mesh, 1, 0, 8, &bits(8, 0b1_0110)),
        own(&mesh, 1, 0, 8, &bits(9, 1 << 63)),
    ];
    for (count, frame) in absurd.iter().enumerate() {
        mesh.shared.borrow_mut().forge(1, 0, 0x11, frame);
        mesh.poll(0);
        assert_eq!(mesh.ends[0].link.counters().invalid_acks, count as u64 + 1);
        assert_eq!(mesh.ends[0].link.used(), [4, 0], "nothing of it counts");
    }
    // Too short, too long, too many words; an old one is no news.
    let odd = [own(&mesh, 1, 0, 8, &[2, 0]), own(&mesh, 1, 0, 8, &[2, 6, 0, 0]), own(&mesh, 1, 0, 8, &[9, 0, 0, 0])];
    for frame in &odd {
        mesh.shared.borrow_mut().forge(1, 0, 0x11, frame);
        mesh.poll(0);
    }
    assert_eq!(mesh.ends[0].link.counters().malformed, 3);
    for ack in [5, 7] {
        let frame = own(&mesh, 1, 0, ack, &[2, 0, 0, 0]);
        mesh.shared.borrow_mut().forge(1, 0, 0x11, &frame);
        mesh.poll(0);
        assert_eq!(mesh.ends[0].link.used(), [4, 0]);
    }
    // A valid acknowledgement.
    let frame = own(&mesh, 1, 0, 9, &bits(10, 1));
    mesh.shared.borrow_mut().forge(1, 0, 0x11, &frame);
    mesh.poll(0);
    assert_eq!(mesh.ends[0].link.used(), [2, 0]);
}

#[test]
fn p15_frames_of_an_earlier_session_fail_the_check() {
    let mut mesh = Mesh::new(2, 1, Faults::default(), |_| {});
    mesh.send(0, 1, Lane::Eager, &bytes(1, 40));
    mesh.settle();
    let old = mesh.shared.borrow().log.clone();
    for (one, other) in [(0, 1), (1, 0)] {
        let to = mesh.ends[one].to[other];
        mesh.ends[one].link.del_peer(to);
        mesh.add_each_other(one, other);
    }
    mesh.ends[1].got.clear();
    mesh.send(0, 1, Lane::Eager, &bytes(2, 40));
    mesh.settle();
    for (from, tag, frame) in &old {
        mesh.shared.borrow_mut().forge(*from, 1 - from, *tag, frame);
    }
    mesh.run_for(10_000_000);
    mesh.check(0, 1, vec![2]);
    assert!(mesh.ends[0].reports.is_empty() && mesh.ends[1].reports.is_empty());
    assert!(mesh.ends[1].link.counters().bad_headers > 0);
}

#[test]
fn p15_a_deleted_peer_is_notified_and_its_memory_is_not_used() {
    for seed in 0..10 {
        let faults = Faults { late_body: 500, in_place: 700, jitter: 5000, ..Faults::default() };
        let mut mesh = Mesh::new(2, seed, faults, |_| {});
        for number in 0..40 {
            mesh.send(0, 1, Lane::Bulk, &bytes(number, 5000 + number as usize * 100));
            mesh.send(1, 0, Lane::Bulk, &bytes(number, 6000));
        }
        let to = mesh.ends[0].to[1];
        // A peer that is given up is still alive. It must not take that for an orderly end.
        let (given_up, why) = if seed % 2 == 1 { (true, Lost::Broken) } else { (false, Lost::Closed) };
        if given_up {
            assert!(mesh.ends[0].link.give_up(to, GiveUp::Peer));
        } else {
            mesh.ends[0].link.del_peer(to);
        }
        assert_eq!(mesh.ends[0].link.used(), [0, 0]);
        // Sanitizers detect accesses to these from now on. No event reports them.
        mesh.ends[0].in_place.clear();
        mesh.ends[0].pending.clear();
        mesh.until("the other end is told", |mesh| !mesh.ends[1].reports.is_empty());
        assert!(matches!(mesh.ends[1].reports[..], [Event::Down(Peer(10), told)] if told == why));
        let got = mesh.ends[0].got.len();
        mesh.run_for(1_000_000);
        assert_eq!((mesh.ends[0].got.len(), mesh.ends[0].reports.len()), (got, 0));
        assert_eq!(mesh.ends[1].reports.len(), 1, "a goodbye is final");
        let to = mesh.ends[1].to[0];
        mesh.ends[1].link.del_peer(to);
        assert_eq!(mesh.ends[1].link.used(), [0, 0]);
    }
}

/// Peers stop one after the other, each when those before it hold as many slots as they may. The remaining peer still has
/// slots.
#[test]
fn p15_b16_peers_that_stop_one_after_the_other_leave_slots_for_others() {
    const PEERS: u32 = 12;
    for (lane, slots) in [(Lane::Eager, 4 * PEERS), (Lane::Control, 2 * PEERS)] {
        let mut mesh = Mesh::new(PEERS as usize, 1, Faults::default(), |config| {
            (config.peers, config.slots, config.control_slots) = (PEERS, slots, slots);
        });
        for to in 1..PEERS as usize {
            mesh.send(0, to, Lane::Eager, &bytes(to as u64, 40));
        }
        mesh.settle();
        mesh.faults(|faults| faults.silent = true);
        for silent in 1..PEERS as usize {
            let taken = (0..).take_while(|_| mesh.try_send(0, silent, lane, &bytes(9, 40)).is_ok()).count();
            assert_ne!(taken, 0, "{lane:?} behind {} others", silent - 1);
        }
        mesh.faults(|faults| faults.silent = false);
        mesh.settle();
        assert!(
            mesh.ends[0].link.peers.paths.iter().all(|path| (path.send.unacked, path.send.unacked_control) == (0, 0))
        );
    }
}

/// However many peers acknowledge nothing, each holds as many slots as it leaves free, and there is a slot for one more peer.
#[test]
fn p15_b16_peers_that_acknowledge_nothing_leave_slots_for_others() {
    const SLOTS: u32 = 48;
    for silent in 1..=6 {
        let mut mesh = Mesh::new(8, 1, Faults::default(), |config| config.slots = SLOTS);
        for to in 1..8 {
            mesh.send(0, to, Lane::Eager, &bytes(to as u64, 40));
        }
        mesh.settle();
        mesh.faults(|faults| faults.silent = true);
        let fill = |mesh: &mut Mesh, lane: Lane| {
            let mut taken = [0; 8];
            while (1..=silent).fold(false, |any, to| {
                let sent = mesh.try_send(0, to, lane, &bytes(9, 40)).is_ok();
                taken[to] += u32::from(sent);
                any | sent
            }) {}
            taken
        };
        // One slot is left for each of the others.
        let share = (SLOTS - (7 - silent as u32)) / (silent as u32 + 1);
        let taken = fill(&mut mesh, Lane::Eager);
        assert!(taken[1..=silent].iter().all(|taken| (share..=share + 1).contains(taken)), "{taken:?} of {silent}");
        assert!(mesh.try_send(0, 7, Lane::Eager, &bytes(9, 40)).is_ok(), "behind {silent}");
        let taken = fill(&mut mesh, Lane::Control);
        assert!(taken[1..=silent].iter().all(|taken| *taken != 0), "{taken:?} of {silent}");
        assert!(mesh.try_send(0, 7, Lane::Control, &bytes(9, 40)).is_ok(), "behind {silent}");
        mesh.faults(|faults| faults.silent = false);
        mesh.settle();
        assert!(
            mesh.ends[0].link.peers.paths.iter().all(|path| (path.send.unacked, path.send.unacked_control) == (0, 0))
        );
    }
}

/// Gaps count as received. A message about gaps that is 2^16 numbers late is not taken for other numbers with the same low
/// half-word. Many gaps cause one answer.
#[test]
fn p15_b37_gaps_have_exactly_the_reported_numbers() {
    const FIRST: u64 = 70_000;
    let mut mesh = Mesh::new(2, 1, Faults::default(), |config| config.first_number = FIRST);
    for number in 0..3 {
        mesh.send(0, 1, Lane::Eager, &bytes(number, 40));
    }
    mesh.settle();
    let void = |mesh: &mut Mesh, number: u64, bits: u64| {
        let mut rest = vec![7, 1];
        rest.extend((number as u16).to_le_bytes());
        rest.extend(bits.to_le_bytes());
        let frame = numbered(mesh, 0, 1, number, FIRST, &rest);
        mesh.shared.borrow_mut().forge(0, 1, 0x11, &frame);
        while mesh.poll(1) {}
        let [path, counters] =
            [&mesh.ends[1].link.peers.paths.first().unwrap().receive.base, &mesh.ends[1].link.counters().acks_sent];
        [*path, *counters]
    };
    let [_, acks] = void(&mut mesh, FIRST + 3, 0);
    assert_eq!(void(&mut mesh, FIRST + 3, 1), [FIRST + 4, acks + 1]);
    assert_eq!(void(&mut mesh, FIRST + 3, 1), [FIRST + 4, acks + 1], "nothing new");
    assert_eq!(void(&mut mesh, FIRST + 4 - (1 << 16), 1), [FIRST + 4, acks + 1], "late");
    assert_eq!(mesh.ends[1].link.counters().bad_headers, 1);
    assert_eq!(void(&mut mesh, FIRST + 4, 0x5555_5555_5555_5554), [FIRST + 4, acks + 2], "with holes");
    assert_eq!(void(&mut mesh, FIRST + 4, 0x2aaa_aaaa_aaaa_aaab), [FIRST + 4 + 63, acks + 3]);
    assert_eq!(void(&mut mesh, FIRST + 4 + 63 + 256, u64::MAX), [FIRST + 4 + 63, acks + 3], "beyond the window");
}
