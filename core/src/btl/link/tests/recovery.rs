//! How soon what is lost is sent again, and that nothing else is.

use super::bench::{Bench, bytes, name_of};
use super::wire::Faults;
use crate::btl::*;

/// A round trip, without the delay of an acknowledgement.
const TRIP: u64 = 400_000;
const ACK_DELAY: u64 = 25_000;
const LEN: usize = 100;

/// Two ends that know how far they are from each other.
fn acquainted(faults: Faults) -> (Bench, u64) {
    let faults = Faults { delay: TRIP / 2 - 1000, ..faults };
    let mut bench = Bench::new(2, 1, Faults { drop: 0, jitter: 0, ..faults }, |config| config.slots = 512);
    for number in 0..400 {
        bench.send(0, 1, Lane::Eager, &bytes(number, LEN));
        bench.pass(20_000);
    }
    bench.settle();
    assert_eq!(bench.ends[0].link.counters().resent, 0);
    bench.shared.borrow_mut().faults = faults;
    (bench, 400)
}

/// These frames get lost, so often.
fn lose(bench: &Bench, victims: impl IntoIterator<Item = (u64, u32)>) {
    bench.shared.borrow_mut().victims = victims.into_iter().collect();
}

/// Sends so many frames, so far apart; returns when the last one left.
fn stream(bench: &mut Bench, from: u64, count: u64, apart: u64) -> u64 {
    for number in from..from + count {
        bench.send(0, 1, Lane::Eager, &bytes(number, LEN));
        if number + 1 < from + count {
            bench.pass(apart);
        }
    }
    bench.now
}

/// Goes on until so many have come; returns when that was.
fn until_got(bench: &mut Bench, count: usize) -> u64 {
    for _ in 0..10_000 {
        if bench.ends[1].got.len() == count {
            return bench.now;
        }
        bench.pass(2000);
    }
    panic!("{} of {count} have come", bench.ends[1].got.len());
}

#[test]
fn p15_the_last_frames_of_a_burst_are_resent_within_three_round_trips() {
    for tail in [1, 2, 5] {
        let (mut bench, sent) = acquainted(Faults::default());
        lose(&bench, (5 - tail..5).map(|place| (sent + place, 1)));
        let left = stream(&mut bench, sent, 5, 0);
        let took = until_got(&mut bench, sent as usize + 5) - left;
        assert!(took < TRIP * 7 / 2 + ACK_DELAY * 2, "the last {tail} took {took} ns");
        bench.settle();
        bench.check(0, 1, (0..sent + 5).collect());
        let [one, other] = [0, 1].map(|end| *bench.ends[end].link.counters());
        assert_eq!((one.resent, other.doubles), (tail, 0), "no more than what was lost");
    }
}

#[test]
fn p15_a_lost_frame_is_resent_when_later_ones_are_acknowledged() {
    let (mut bench, sent) = acquainted(Faults::default());
    lose(&bench, [(sent + 10, 1)]);
    let start = bench.now;
    stream(&mut bench, sent, 11, 2000);
    let left = bench.now;
    assert!(left - start < TRIP);
    stream(&mut bench, sent + 11, 60, 2000);
    let took = until_got(&mut bench, sent as usize + 71) - left;
    assert!(took < TRIP * 7 / 4 + ACK_DELAY, "{took} ns");
    bench.settle();
    assert_eq!((bench.ends[0].link.counters().resent, bench.ends[0].link.counters().timeouts), (1, 0));
}

/// The resent frame is told from its first time on the way by when it left: what left after that, and has come, tells that
/// it is lost again.
#[test]
fn p15_a_resent_frame_that_is_lost_again_is_resent_within_two_round_trips_more() {
    let (mut bench, sent) = acquainted(Faults::default());
    for times in 1..4 {
        let number = sent + u64::from(times - 1) * 200;
        lose(&bench, [(number, times)]);
        let (left, mut came) = (bench.now, None);
        for next in number..number + 200 {
            stream(&mut bench, next, 1, 0);
            bench.pass(10_000);
            if came.is_none() && bench.ends[1].got.iter().any(|(.., frame)| name_of(frame) == number) {
                came = Some(bench.now - left);
            }
        }
        let most = TRIP / 2 + u64::from(times) * (TRIP * 3 / 2 + ACK_DELAY);
        assert!(came.is_some_and(|took| took < most), "lost {times} times, it took {came:?} ns");
        bench.settle();
    }
    assert_eq!((bench.ends[0].link.counters().resent, bench.ends[1].link.counters().doubles), (6, 0));
}

/// Frames that overtake each other, by less than a round trip, are waited for once that is known.
#[test]
fn p15_overtaking_alone_makes_nothing_leave_twice_once_it_is_known() {
    for jitter in [TRIP / 8, TRIP / 2] {
        let (mut bench, sent) = acquainted(Faults { jitter, ..Faults::default() });
        stream(&mut bench, sent, 2000, 3000);
        bench.settle();
        let before = *bench.ends[0].link.counters();
        assert!(before.resent < 200, "{before:?}");
        stream(&mut bench, sent + 2000, 2000, 3000);
        bench.settle();
        let after = *bench.ends[0].link.counters();
        assert!(
            after.resent - before.resent <= 2,
            "{} more, of {} before",
            after.resent - before.resent,
            before.resent
        );
        bench.check(0, 1, (0..sent + 4000).collect());
    }
}

/// Loss that comes by chance, however much there is sent, leaves room for as many frames as a link begins with.
#[test]
fn p15_the_window_outlives_loss_by_chance() {
    for drop in [10, 50, 100, 300] {
        let (mut bench, sent) = acquainted(Faults { drop, ..Faults::default() });
        let mut least = u32::MAX;
        for number in 0..3000 {
            bench.send(0, 1, Lane::Bulk, &bytes(sent + number, LEN));
            least = least.min(bench.ends[0].link.paths[0].congestion.allowed());
        }
        bench.settle();
        assert!(least >= 16, "{least} frames at {drop} per mille");
        bench.check(0, 1, (0..sent + 3000).collect());
    }
}
