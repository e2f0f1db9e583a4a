//! Tests of loss detection: lost frames are sent again soon, and no other frames are.

use super::mesh::{Mesh, bytes, name_of};
use super::wire::Faults;
use crate::rail::*;
use crate::time::Instant;

/// The round trip, without the delay of an acknowledgement.
const TRIP: u64 = 400_000;
const ACK_DELAY: u64 = 25_000;
const LEN: usize = 100;

/// Two ends that know the round trip between them.
fn connected(faults: Faults) -> (Mesh, u64) {
    connected_with(faults, 256)
}

fn connected_with(faults: Faults, window: u32) -> (Mesh, u64) {
    let faults = Faults { delay: TRIP / 2 - 1000, ..faults };
    let calm = Faults { drop: 0, jitter: 0, drop_own: 0, ..faults };
    let mut mesh = Mesh::new(2, 1, calm, |config| (config.slots, config.window) = (2 * window, window));
    for number in 0..400 {
        mesh.send(0, 1, Lane::Eager, &bytes(number, LEN));
        mesh.pass(20_000);
    }
    mesh.settle();
    assert_eq!(mesh.ends[0].link.counters().resent, 0);
    mesh.shared.borrow_mut().faults = faults;
    (mesh, 400)
}

/// Loses these frames: number, and how many times.
fn lose(mesh: &Mesh, victims: impl IntoIterator<Item = (u64, u32)>) {
    mesh.shared.borrow_mut().victims = victims.into_iter().collect();
}

/// Sends `count` frames from number `from` on, `apart` nanoseconds apart. Returns when the last one was sent.
fn stream(mesh: &mut Mesh, from: u64, count: u64, apart: u64) -> u64 {
    for number in from..from + count {
        mesh.send(0, 1, Lane::Eager, &bytes(number, LEN));
        if number + 1 < from + count {
            mesh.pass(apart);
        }
    }
    mesh.now
}

/// Goes on until `count` frames have arrived. Returns when that was.
fn until_got(mesh: &mut Mesh, count: usize) -> u64 {
    for _ in 0..10_000 {
        if mesh.ends[1].got.len() == count {
            return mesh.now;
        }
        mesh.pass(2000);
    }
    panic!("{} of {count} have come", mesh.ends[1].got.len());
}

/// Sends `count` frames from number `number` on. Returns how long it took until the first of them arrived.
fn arrival(mesh: &mut Mesh, number: u64, count: u64, apart: u64) -> u64 {
    let (left, mut came) = (mesh.now, None);
    let mut next = number;
    while came.is_none() || next < number + count {
        if next < number + count {
            stream(mesh, next, 1, 0);
            next += 1;
        }
        mesh.pass(apart);
        if came.is_none() && mesh.ends[1].got.iter().any(|(.., frame)| name_of(frame) == number) {
            came = Some(mesh.now - left);
        }
    }
    came.unwrap()
}

#[test]
fn p15_the_last_frames_of_a_burst_are_resent_within_three_round_trips() {
    for tail in [1, 2, 5] {
        let (mut mesh, sent) = connected(Faults::default());
        lose(&mesh, (5 - tail..5).map(|place| (sent + place, 1)));
        let left = stream(&mut mesh, sent, 5, 0);
        let took = until_got(&mut mesh, sent as usize + 5) - left;
        assert!(took < TRIP * 7 / 2 + ACK_DELAY * 2, "the last {tail} took {took} ns");
        mesh.settle();
        mesh.check(0, 1, (0..sent + 5).collect());
        let [one, other] = [0, 1].map(|end| *mesh.ends[end].link.counters());
        assert_eq!((one.resent, other.duplicates), (tail, 0), "no more than what was lost");
    }
}

#[test]
fn p15_a_lost_frame_is_resent_when_later_ones_are_acknowledged() {
    let (mut mesh, sent) = connected(Faults::default());
    lose(&mesh, [(sent + 10, 1)]);
    let start = mesh.now;
    stream(&mut mesh, sent, 11, 2000);
    let left = mesh.now;
    assert!(left - start < TRIP);
    stream(&mut mesh, sent + 11, 60, 2000);
    let took = until_got(&mut mesh, sent as usize + 71) - left;
    assert!(took < TRIP * 7 / 4 + ACK_DELAY, "{took} ns");
    mesh.settle();
    assert_eq!((mesh.ends[0].link.counters().resent, mesh.ends[0].link.counters().timeouts), (1, 0));
}

/// A resent frame is distinguished from its first transmission by its time. Later transmissions that arrived prove that it is
/// lost again.
#[test]
fn p15_a_resent_frame_that_is_lost_again_is_resent_within_two_round_trips_more() {
    let (mut mesh, sent) = connected(Faults::default());
    for times in 1..4 {
        let number = sent + u64::from(times - 1) * 200;
        lose(&mesh, [(number, times)]);
        let took = arrival(&mut mesh, number, 200, 10_000);
        let most = TRIP / 2 + u64::from(times) * (TRIP * 3 / 2 + ACK_DELAY);
        assert!(took < most, "lost {times} times, it took {took} ns");
        mesh.settle();
    }
    assert_eq!((mesh.ends[0].link.counters().resent, mesh.ends[1].link.counters().duplicates), (6, 0));
}

/// The same where an acknowledgement of all frames in flight takes several frames.
#[test]
fn p15_in_a_large_window_a_second_loss_is_noticed_as_soon() {
    let (mut mesh, sent) = connected_with(Faults::default(), 1024);
    lose(&mesh, [(sent, 2)]);
    let took = arrival(&mut mesh, sent, 700, 1000);
    assert!(took < TRIP / 2 + 2 * (TRIP * 3 / 2 + ACK_DELAY), "it took {took} ns");
    mesh.settle();
    assert_eq!((mesh.ends[0].link.counters().resent, mesh.ends[1].link.counters().duplicates), (2, 0));
    mesh.check(0, 1, (0..sent + 700).collect());
}

/// A lost part of an acknowledgement says nothing about the frames that it covers.
#[test]
fn p15_in_a_large_window_lost_parts_of_acknowledgements_cause_few_duplicates() {
    let (mut mesh, sent) = connected_with(Faults { drop_own: 300, ..Faults::default() }, 1024);
    lose(&mesh, (0..8).map(|place| (sent + place * 500, 3)));
    stream(&mut mesh, sent, 4000, 700);
    mesh.settle();
    let (resent, duplicates) = (mesh.ends[0].link.counters().resent, mesh.ends[1].link.counters().duplicates);
    assert!(duplicates < 60, "{duplicates} came twice, of {resent} that left twice");
    mesh.check(0, 1, (0..sent + 4000).collect());
}

/// A peer that computes, or is stopped, reads late, but in the same order. The next loss is noticed as soon as without the
/// pause.
#[test]
fn p15_a_pause_of_the_peer_is_no_proof_of_reordering() {
    for pause in (16..48).map(|eighths| TRIP * eighths / 8).chain([50 * TRIP, 3_000_000_000]) {
        let (mut mesh, sent) = connected(Faults::default());
        for number in sent..sent + 20 {
            assert!(mesh.try_send(0, 1, Lane::Bulk, &bytes(number, LEN)).is_ok());
        }
        let end = mesh.now + pause;
        while mesh.now < end {
            while mesh.poll(0) {}
            let due = mesh.ends[0].link.poll_at().map_or(end, Instant::as_nanos);
            mesh.now = due.clamp(mesh.now + 1, end);
        }
        mesh.settle();
        mesh.pass(10 * TRIP);
        let [one, other] = [0, 1].map(|end| *mesh.ends[end].link.counters());
        let path = &mesh.ends[0].link.peers.paths[0];
        assert!(!path.loss.reordering.is_seen(), "after {pause} ns: {one:?}");
        assert!(path.estimator.smoothed() < 4 * TRIP, "a pause of {pause} ns is no part of the way");
        assert_eq!((one.spurious, one.resent), (0, other.duplicates), "after {pause} ns");
        assert!(one.resent <= 2 * one.timeouts, "after {pause} ns: {one:?}");
        mesh.check(0, 1, (0..sent + 20).collect());
    }
}

/// The path becomes longer than the old time-outs. Frames that are sent twice for that reason do not measure the round trip. So
/// the time-outs stay long until a frame that was sent once measures it.
#[test]
fn p15_a_path_that_becomes_longer_is_learnt_and_frames_are_sent_once_again() {
    for (longer, most) in [(6, 10), (200, 30)] {
        let (mut mesh, sent) = connected(Faults::default());
        mesh.shared.borrow_mut().faults.delay *= longer;
        for number in sent..sent + 40 {
            mesh.send(0, 1, Lane::Control, &bytes(number, LEN));
            mesh.pass(3 * longer * TRIP);
        }
        mesh.settle();
        let counters = *mesh.ends[0].link.counters();
        assert!(counters.timeouts != 0 && counters.timeouts < most, "{longer} times as long: {counters:?}");
        assert_eq!(
            mesh.ends[0].link.peers.paths[0].loss.reordering.early_timeouts(),
            0,
            "{longer} times as long: it is learnt"
        );
        mesh.check(0, 1, (0..sent + 40).collect());
    }
}

/// Frames are reordered, by less than a round trip. Once that is known, the link waits for them.
#[test]
fn p15_reordering_causes_no_duplicates_once_it_is_known() {
    for jitter in [TRIP / 8, TRIP / 2] {
        let (mut mesh, sent) = connected(Faults { jitter, ..Faults::default() });
        stream(&mut mesh, sent, 2000, 3000);
        mesh.settle();
        let before = *mesh.ends[0].link.counters();
        assert!(before.resent < 200, "{before:?}");
        stream(&mut mesh, sent + 2000, 2000, 3000);
        mesh.settle();
        let after = *mesh.ends[0].link.counters();
        assert!(
            after.resent - before.resent <= 2,
            "{} more, of {} before",
            after.resent - before.resent,
            before.resent
        );
        mesh.check(0, 1, (0..sent + 4000).collect());
    }
}

/// Random loss, however many frames are sent, leaves a window as large as the initial one.
#[test]
fn p15_the_congestion_window_survives_random_loss() {
    for drop in [10, 50, 100, 300] {
        let (mut mesh, sent) = connected(Faults { drop, ..Faults::default() });
        let mut least = u32::MAX;
        for number in 0..3000 {
            mesh.send(0, 1, Lane::Bulk, &bytes(sent + number, LEN));
            least = least.min(mesh.ends[0].link.peers.paths[0].congestion.allowed());
        }
        mesh.settle();
        assert!(least >= 16, "{least} frames at {drop} per mille");
        mesh.check(0, 1, (0..sent + 3000).collect());
    }
}
