//! Each frame arrives exactly once, with its exact bytes.

use super::mesh::{Mesh, bytes};
use super::wire::{Faults, wires};
use crate::link::Config;
use crate::rail::*;
use std::vec::Vec;

const LANES: [Lane; 3] = [Lane::Control, Lane::Eager, Lane::Bulk];

/// Both ends send frames of all sizes on all lanes. All arrive once and unchanged, and no memory is in use afterwards.
fn flood(seed: u64, faults: Faults, count: u64, tune: impl Fn(&mut Config)) -> Mesh {
    flood_by(Mesh::new(2, seed, faults, tune), count)
}

fn flood_by(mut mesh: Mesh, count: u64) -> Mesh {
    for number in 0..count {
        for (from, to) in [(0, 1), (1, 0)] {
            let lane = LANES[mesh.random.below(3) as usize];
            let limit = [5000, 5000, 10_000][lane as usize];
            let len = match mesh.random.below(4) {
                0 => 8 + mesh.random.below(30),
                1 => 36 + mesh.random.below(40),
                2 => 8 + mesh.random.below(600),
                _ => 8 + mesh.random.below(limit - 8),
            };
            mesh.send(from, to, lane, &bytes(number << 8 | from as u64, len as usize));
        }
    }
    mesh.settle();
    for (from, to) in [(0, 1), (1, 0)] {
        mesh.check(from, to, (0..count).map(|number| number << 8 | from as u64).collect::<Vec<_>>());
    }
    for end in &mesh.ends {
        assert!(end.got.is_empty() && end.reports.is_empty(), "{:?}", end.reports);
    }
    mesh
}

#[test]
fn p15_b34_each_frame_arrives_once_and_unchanged_at_any_loss() {
    for (seed, drop) in [0, 10, 100, 300].into_iter().enumerate() {
        flood(seed as u64, Faults { drop, ..Faults::default() }, 300, |_| {});
    }
}

#[test]
fn p15_b34_duplicates_reordering_and_flipped_bits_are_invisible() {
    let faults = Faults { drop: 50, double: 200, corrupt: 200, jitter: 20_000, ..Faults::default() };
    let mesh = flood(7, faults, 400, |_| {});
    let counters = mesh.ends[0].link.counters();
    assert!(counters.duplicates > 0 && counters.bad_headers > 0 && counters.bad_bodies > 0 && counters.resent > 0);
    assert!(counters.beyond_window + counters.no_room == 0, "{counters:?}");
}

#[test]
fn p15_a_raw_rail_may_be_busy_at_any_call_and_late_with_bodies() {
    for seed in 0..6 {
        let faults = Faults {
            drop: 30,
            double: 50,
            corrupt: 50,
            jitter: 5000,
            busy: [100, 500, 900][seed as usize % 3],
            late_body: [0, 500][seed as usize % 2],
            in_place: 500,
            ..Faults::default()
        };
        let mesh = flood(seed, faults, 200, |_| {});
        assert!(mesh.shared.borrow().in_place > 0 && mesh.ends[0].sent > 0);
    }
}

/// A device that reads the memory itself reads the body of a duplicate after the memory has changed.
#[test]
fn p15_b34_bodies_that_change_on_their_way_are_duplicates() {
    let mut duplicates = 0;
    for seed in 0..6 {
        let late_body = [0, 500][seed as usize % 2];
        let faults = Faults { drop: 50, double: 200, jitter: 300_000, late_body, by_pages: 800, ..Faults::default() };
        let mesh = flood(seed, faults, 200, |_| {});
        duplicates += mesh.ends.iter().map(|end| end.link.counters().duplicates).sum::<u64>();
        let resent = mesh.ends.iter().map(|end| end.link.counters().resent).sum::<u64>();
        assert!(resent > 0 && mesh.shared.borrow().by_pages > 0);
    }
    assert!(duplicates > 100, "{duplicates}");
}

#[test]
fn p15_frame_numbers_wrap() {
    for first in [u64::from(u16::MAX) - 20, u64::from(u32::MAX) - 20, (1 << 48) - 3, u64::MAX - 20] {
        let faults = Faults { drop: 100, double: 100, jitter: 5000, ..Faults::default() };
        flood(first, faults, 150, |config| config.first_number = first);
    }
}

#[test]
fn p15_any_window_and_a_single_slot_are_enough() {
    for (window, slots) in [(4, 64), (8, 1), (64, 1), (64, 3), (1024, 600)] {
        let faults = Faults { drop: 100, double: 100, corrupt: 50, jitter: 5000, in_place: 300, ..Faults::default() };
        let seed = u64::from(window + slots);
        flood(seed, faults, 150, |config| (config.window, config.slots, config.control_slots) = (window, slots, 1));
    }
}

/// A peer that has room for one frame keeps the room for a frame that arrived damaged, and refuses all others. The damaged
/// frame may have to wait at the sender, whose window is full of refused frames. The test loses all negative
/// acknowledgements, too.
#[test]
fn p15_b34_a_window_full_of_refused_frames_lets_the_awaited_one_leave() {
    let mut refused = 0;
    for seed in 0..12 {
        let lose_nacks = seed % 2 == 0;
        let faults = Faults { drop: 100, corrupt: 150, jitter: 2000, lose_nacks, ..Faults::default() };
        let mut wires = wires(2, seed, faults, true);
        wires.iter_mut().for_each(|wire| wire.keeps(1));
        let mesh = Mesh::with(wires, seed, |config| (config.deliveries, config.initial_window) = (1, 4));
        let mesh = flood_by(mesh, 60);
        refused += mesh.ends.iter().map(|end| end.link.counters().no_room).sum::<u64>();
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn p15_acknowledgements_may_be_lost() {
    let mut mesh = Mesh::new(2, 3, Faults { drop_own: 600, ..Faults::default() }, |_| {});
    for number in 0..200 {
        mesh.send(0, 1, Lane::Eager, &bytes(number, 30));
    }
    mesh.settle();
    mesh.check(0, 1, (0..200).collect());
    assert!(mesh.ends[1].link.counters().duplicates > 0);
}

#[test]
fn p15_without_checksums_only_bodies_are_unchecked() {
    let wires = super::wire::wires(2, 5, Faults { by_pages: 1000, ..Faults::default() }, false);
    let mut mesh = Mesh::with(wires, 5, |config| config.sums = false);
    for number in 0..200 {
        let len = 8 + mesh.random.below(5000) as usize;
        mesh.send(0, 1, Lane::Bulk, &bytes(number, len));
    }
    mesh.settle();
    mesh.check(0, 1, (0..200).collect());
    assert_eq!(mesh.ends[0].link.counters().resent, 0);
    assert_eq!(mesh.shared.borrow().by_pages, 0, "no checksum would show the change");
}

#[test]
fn p15_a_sender_does_not_wait_for_further_calls_of_a_reader_that_has_all_it_wanted() {
    let mut mesh = Mesh::new(2, 1, Faults::default(), |_| {});
    mesh.send(0, 1, Lane::Control, &bytes(1, 8)); // the handshake
    mesh.settle();
    let mut count = 1;
    while mesh.ends[0].in_place.is_empty() {
        count += 1; // some are copied by a grant
        mesh.send(0, 1, Lane::Bulk, &bytes(count, 9000));
    }
    while mesh.ends[1].got.len() < count as usize {
        mesh.now += 1000;
        mesh.poll(1);
    }
    for _ in 0..1000 {
        mesh.now += 1000;
        mesh.poll(0);
    }
    assert!(mesh.ends[0].in_place.is_empty() && mesh.ends[0].sent > 0);
}
