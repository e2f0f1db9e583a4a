//! A peer that sends anything.

use super::bench::{Bench, bytes};
use super::wire::{Dice, Faults};
use crate::link::Crc32c;
use crate::link::header::head_check;
use crate::rail::*;
use std::{vec, vec::Vec};

#[test]
fn p15_no_bytes_cause_a_panic_or_free_a_frame() {
    let mut dice = Dice(5);
    let mut bench = Bench::new(2, 1, Faults::default(), |_| {});
    for number in 0..10 {
        bench.send(0, 1, Lane::Eager, &bytes(number, 5000));
    }
    bench.settle();
    bench.faults(|faults| faults.silent = true);
    for number in 10..15 {
        bench.send(0, 1, Lane::Eager, &bytes(number, 40));
    }
    let kept = bench.ends[0].link.used();
    for _ in 0..20_000 {
        let len = dice.below(80) as usize;
        let frame: Vec<u8> = (0..len).map(|_| dice.word() as u8).collect();
        let tag = [0x11, 0x12, 0x80, dice.word() as u8][dice.below(4) as usize];
        bench.shared.borrow_mut().forge(1, 0, tag, &frame);
        bench.poll(0);
    }
    assert_eq!(bench.ends[0].link.used(), kept);
    assert!(bench.ends[0].got.is_empty());
    bench.faults(|faults| faults.silent = false);
    bench.settle();
    bench.check(0, 1, (0..15).collect());
}

/// A control frame as `from` would send it, with a right check.
pub fn own(bench: &Bench, from: usize, to: usize, ack: u64, rest: &[u8]) -> Vec<u8> {
    numbered(bench, from, to, 0, ack, rest)
}

/// The same, with a full number that the check covers.
fn numbered(bench: &Bench, from: usize, to: usize, number: u64, ack: u64, rest: &[u8]) -> Vec<u8> {
    let path = bench.ends[to].link.peers.paths.first().copied().unwrap();
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
    let mut bench = Bench::new(2, 1, Faults::default(), |config| config.first_number = 5);
    for number in 0..3 {
        bench.send(0, 1, Lane::Eager, &bytes(number, 40));
    }
    bench.settle();
    bench.faults(|faults| faults.silent = true);
    for number in 3..7 {
        bench.send(0, 1, Lane::Eager, &bytes(number, 40));
    }
    // Numbers 8 to 11 are in flight; 12 would be the next.
    let bits = |from: u16, word: u64| {
        let mut rest = vec![2, 1];
        rest.extend(from.to_le_bytes());
        rest.extend(word.to_le_bytes());
        rest
    };
    let absurd = [
        own(&bench, 1, 0, 13, &[2, 0, 0, 0]),
        own(&bench, 1, 0, 30_000, &[2, 0, 0, 0]),
        own(&bench, 1, 0, 8, &bits(8, 0b1_0110)),
        own(&bench, 1, 0, 8, &bits(9, 1 << 63)),
    ];
    for (count, frame) in absurd.iter().enumerate() {
        bench.shared.borrow_mut().forge(1, 0, 0x11, frame);
        bench.poll(0);
        assert_eq!(bench.ends[0].link.counters().invalid_acks, count as u64 + 1);
        assert_eq!(bench.ends[0].link.used(), [4, 0], "nothing of it counts");
    }
    // Too short, too long, too many words; an old one tells nothing new.
    let odd = [own(&bench, 1, 0, 8, &[2, 0]), own(&bench, 1, 0, 8, &[2, 6, 0, 0]), own(&bench, 1, 0, 8, &[9, 0, 0, 0])];
    for frame in &odd {
        bench.shared.borrow_mut().forge(1, 0, 0x11, frame);
        bench.poll(0);
    }
    assert_eq!(bench.ends[0].link.counters().malformed, 3);
    for ack in [5, 7] {
        let frame = own(&bench, 1, 0, ack, &[2, 0, 0, 0]);
        bench.shared.borrow_mut().forge(1, 0, 0x11, &frame);
        bench.poll(0);
        assert_eq!(bench.ends[0].link.used(), [4, 0]);
    }
    // A right one.
    let frame = own(&bench, 1, 0, 9, &bits(10, 1));
    bench.shared.borrow_mut().forge(1, 0, 0x11, &frame);
    bench.poll(0);
    assert_eq!(bench.ends[0].link.used(), [2, 0]);
}

#[test]
fn p15_frames_of_an_earlier_session_fail_the_check() {
    let mut bench = Bench::new(2, 1, Faults::default(), |_| {});
    bench.send(0, 1, Lane::Eager, &bytes(1, 40));
    bench.settle();
    let old = bench.shared.borrow().log.clone();
    for (one, other) in [(0, 1), (1, 0)] {
        let to = bench.ends[one].to[other];
        bench.ends[one].link.del_peer(to);
        bench.add_each_other(one, other);
    }
    bench.ends[1].got.clear();
    bench.send(0, 1, Lane::Eager, &bytes(2, 40));
    bench.settle();
    for (from, tag, frame) in &old {
        bench.shared.borrow_mut().forge(*from, 1 - from, *tag, frame);
    }
    bench.run_for(10_000_000);
    bench.check(0, 1, vec![2]);
    assert!(bench.ends[0].reports.is_empty() && bench.ends[1].reports.is_empty());
    assert!(bench.ends[1].link.counters().bad_headers > 0);
}

#[test]
fn p15_a_deleted_peer_is_told_and_its_memory_is_left_alone() {
    for seed in 0..10 {
        let faults = Faults { late_body: 500, in_place: 700, jitter: 5000, ..Faults::default() };
        let mut bench = Bench::new(2, seed, faults, |_| {});
        for number in 0..40 {
            bench.send(0, 1, Lane::Bulk, &bytes(number, 5000 + number as usize * 100));
            bench.send(1, 0, Lane::Bulk, &bytes(number, 6000));
        }
        let to = bench.ends[0].to[1];
        // A peer that is given up is there nevertheless. It must not take that for an orderly end.
        let (given_up, why) = if seed % 2 == 1 { (true, Lost::Broken) } else { (false, Lost::Closed) };
        if given_up {
            assert!(bench.ends[0].link.give_up(to, GiveUp::Peer));
        } else {
            bench.ends[0].link.del_peer(to);
        }
        assert_eq!(bench.ends[0].link.used(), [0, 0]);
        // Sanitizers detect accesses to these from now on. No event reports them.
        bench.ends[0].in_place.clear();
        bench.ends[0].pending.clear();
        bench.until("the other end is told", |bench| !bench.ends[1].reports.is_empty());
        assert!(matches!(bench.ends[1].reports[..], [Event::Down(Peer(10), told)] if told == why));
        let got = bench.ends[0].got.len();
        bench.run_for(1_000_000);
        assert_eq!((bench.ends[0].got.len(), bench.ends[0].reports.len()), (got, 0));
        assert_eq!(bench.ends[1].reports.len(), 1, "a goodbye is final");
        let to = bench.ends[1].to[0];
        bench.ends[1].link.del_peer(to);
        assert_eq!(bench.ends[1].link.used(), [0, 0]);
    }
}

/// Peers stop one after the other, each when those before it hold as many slots as they may. The remaining peer still has
/// slots.
#[test]
fn p15_b16_peers_that_stop_one_after_the_other_leave_slots_for_others() {
    const PEERS: u32 = 12;
    for (lane, slots) in [(Lane::Eager, 4 * PEERS), (Lane::Control, 2 * PEERS)] {
        let mut bench = Bench::new(PEERS as usize, 1, Faults::default(), |config| {
            (config.peers, config.slots, config.control_slots) = (PEERS, slots, slots);
        });
        for to in 1..PEERS as usize {
            bench.send(0, to, Lane::Eager, &bytes(to as u64, 40));
        }
        bench.settle();
        bench.faults(|faults| faults.silent = true);
        for silent in 1..PEERS as usize {
            let taken = (0..).take_while(|_| bench.try_send(0, silent, lane, &bytes(9, 40)).is_ok()).count();
            assert_ne!(taken, 0, "{lane:?} behind {} others", silent - 1);
        }
        bench.faults(|faults| faults.silent = false);
        bench.settle();
        assert!(
            bench.ends[0].link.peers.paths.iter().all(|path| (path.send.unacked, path.send.unacked_control) == (0, 0))
        );
    }
}

/// However many peers acknowledge nothing, each holds as many slots as it leaves free, and there is a slot for one more peer.
#[test]
fn p15_b16_peers_that_acknowledge_nothing_leave_slots_for_others() {
    const SLOTS: u32 = 48;
    for silent in 1..=6 {
        let mut bench = Bench::new(8, 1, Faults::default(), |config| config.slots = SLOTS);
        for to in 1..8 {
            bench.send(0, to, Lane::Eager, &bytes(to as u64, 40));
        }
        bench.settle();
        bench.faults(|faults| faults.silent = true);
        let fill = |bench: &mut Bench, lane: Lane| {
            let mut taken = [0; 8];
            while (1..=silent).fold(false, |any, to| {
                let sent = bench.try_send(0, to, lane, &bytes(9, 40)).is_ok();
                taken[to] += u32::from(sent);
                any | sent
            }) {}
            taken
        };
        // One slot is left for each of the others.
        let share = (SLOTS - (7 - silent as u32)) / (silent as u32 + 1);
        let taken = fill(&mut bench, Lane::Eager);
        assert!(taken[1..=silent].iter().all(|taken| (share..=share + 1).contains(taken)), "{taken:?} of {silent}");
        assert!(bench.try_send(0, 7, Lane::Eager, &bytes(9, 40)).is_ok(), "behind {silent}");
        let taken = fill(&mut bench, Lane::Control);
        assert!(taken[1..=silent].iter().all(|taken| *taken != 0), "{taken:?} of {silent}");
        assert!(bench.try_send(0, 7, Lane::Control, &bytes(9, 40)).is_ok(), "behind {silent}");
        bench.faults(|faults| faults.silent = false);
        bench.settle();
        assert!(
            bench.ends[0].link.peers.paths.iter().all(|path| (path.send.unacked, path.send.unacked_control) == (0, 0))
        );
    }
}

/// Gaps count as received. A message about gaps that is 2^16 numbers late is not taken for other numbers with the same low
/// half-word. Many gaps cause one answer.
#[test]
fn p15_b37_gaps_are_the_numbers_that_were_meant() {
    const FIRST: u64 = 70_000;
    let mut bench = Bench::new(2, 1, Faults::default(), |config| config.first_number = FIRST);
    for number in 0..3 {
        bench.send(0, 1, Lane::Eager, &bytes(number, 40));
    }
    bench.settle();
    let void = |bench: &mut Bench, number: u64, bits: u64| {
        let mut rest = vec![7, 1];
        rest.extend((number as u16).to_le_bytes());
        rest.extend(bits.to_le_bytes());
        let frame = numbered(bench, 0, 1, number, FIRST, &rest);
        bench.shared.borrow_mut().forge(0, 1, 0x11, &frame);
        while bench.poll(1) {}
        let [path, counters] =
            [&bench.ends[1].link.peers.paths.first().unwrap().receive.base, &bench.ends[1].link.counters().acks_sent];
        [*path, *counters]
    };
    let [_, acks] = void(&mut bench, FIRST + 3, 0);
    assert_eq!(void(&mut bench, FIRST + 3, 1), [FIRST + 4, acks + 1]);
    assert_eq!(void(&mut bench, FIRST + 3, 1), [FIRST + 4, acks + 1], "nothing new");
    assert_eq!(void(&mut bench, FIRST + 4 - (1 << 16), 1), [FIRST + 4, acks + 1], "late");
    assert_eq!(bench.ends[1].link.counters().bad_headers, 1);
    assert_eq!(void(&mut bench, FIRST + 4, 0x5555_5555_5555_5554), [FIRST + 4, acks + 2], "with holes");
    assert_eq!(void(&mut bench, FIRST + 4, 0x2aaa_aaaa_aaaa_aaab), [FIRST + 4 + 63, acks + 3]);
    assert_eq!(void(&mut bench, FIRST + 4 + 63 + 256, u64::MAX), [FIRST + 4 + 63, acks + 3], "beyond the window");
}
