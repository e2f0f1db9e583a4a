//! Links that go down and come up again.

use super::bench::{Bench, bytes};
use super::wire::Faults;
use crate::link::path::DownReason;
use crate::rail::*;
use crate::time::{Duration, Instant};
use std::vec;

const SECOND: u64 = 1_000_000_000;

fn is_down(bench: &Bench, end: usize) -> Option<Lost> {
    match bench.ends[end].reports.last() {
        Some(Event::Down(_, why)) => Some(*why),
        _ => None,
    }
}

fn is_up(bench: &Bench, end: usize) -> bool {
    matches!(bench.ends[end].reports.last(), None | Some(Event::Up(_)))
}

#[test]
fn p15_a_silent_link_goes_down_and_an_answer_brings_it_up_with_all_frames_once() {
    for first in [0, u64::from(u16::MAX) - 3] {
        let mut bench = Bench::new(2, 1, Faults::default(), |config| config.first_number = first);
        for number in 0..20 {
            bench.send(0, 1, Lane::Bulk, &bytes(number, 8 + number as usize * 400));
        }
        bench.settle();
        bench.faults(|faults| faults.silent = true);
        let since = bench.now;
        for number in 20..30 {
            assert!(bench.try_send(0, 1, Lane::Bulk, &bytes(number, 8 + number as usize * 300)).is_ok());
        }
        bench.until("the silence is noticed", |bench| is_down(bench, 0).is_some());
        assert_eq!(is_down(&bench, 0), Some(Lost::TimedOut));
        assert!((4 * SECOND..8 * SECOND).contains(&(bench.now - since)), "{}", bench.now - since);
        assert_eq!(bench.try_send(0, 1, Lane::Control, &bytes(99, 8)), Err(SendError::Unreachable));
        bench.run_for(20 * SECOND);
        assert_eq!(bench.ends[0].reports.len(), 1, "its end is told once");
        bench.faults(|faults| faults.silent = false);
        bench.until("it is back", |bench| is_up(bench, 0) && is_up(bench, 1));
        for number in 30..40 {
            bench.send(0, 1, Lane::Eager, &bytes(number, 100));
        }
        bench.settle();
        bench.check(0, 1, (0..40).collect());
    }
}

#[test]
fn p15_a_raw_rail_that_loses_the_peer_is_added_again() {
    for seed in 0..8 {
        let faults = Faults { drop: 50, late_body: 300, in_place: 500, jitter: 5000, ..Faults::default() };
        let mut bench = Bench::new(2, seed, faults, |_| {});
        let mut count = 0;
        for _ in 0..5 {
            for _ in 0..30 {
                let len = 8 + bench.dice.below(9000) as usize;
                bench.send(0, 1, Lane::Bulk, &bytes(count, len));
                count += 1;
            }
            bench.shared.borrow_mut().cut(0, 1);
            bench.until("both are told", |bench| is_down(bench, 0).is_some() && is_down(bench, 1).is_some());
            assert_eq!(is_down(&bench, 0), Some(Lost::Broken));
            bench.until("both are back", |bench| is_up(bench, 0) && is_up(bench, 1));
        }
        bench.settle();
        bench.check(0, 1, (0..count).collect());
        assert_eq!(bench.ends[0].link.counters().downs, 5);
    }
}

/// The first send comes before the first poll, by which a link learns the time. A clock that begins far on is no silence of
/// the peer.
#[test]
fn p15_a_clock_that_begins_far_on_is_no_silence() {
    let mut bench = Bench::new(2, 1, Faults::default(), |config| config.dead_after = Duration::from_secs(1 << 30));
    bench.now = 28_000 * SECOND;
    bench.send(0, 1, Lane::Eager, &bytes(0, 100));
    bench.settle();
    bench.check(0, 1, (0..1).collect());
    assert!(bench.ends.iter().all(|end| end.reports.is_empty()));
}

/// A wire is cut in one direction. The peer that is heard, and hears nothing, would never acknowledge a frame.
#[test]
fn p15_a_peer_that_hears_nothing_is_down_for_both_sides() {
    let mut bench = Bench::new(2, 1, Faults::default(), |_| {});
    bench.send(0, 1, Lane::Bulk, &bytes(0, 100));
    bench.settle();
    bench.shared.borrow_mut().deaf = Some(1);
    assert!(bench.try_send(0, 1, Lane::Bulk, &bytes(1, 100)).is_ok());
    bench.until("both have noticed", |bench| is_down(bench, 0).is_some() && is_down(bench, 1).is_some());
    bench.shared.borrow_mut().mend();
    bench.until("both are back", |bench| is_up(bench, 0) && is_up(bench, 1));
    bench.settle();
    bench.check(0, 1, vec![0, 1]);
}

/// A link that is idle but for a frame now and then, at a loss of 30 % in each direction, never counts as dead.
#[test]
fn p15_a_link_that_loses_a_third_stays_up_for_hours() {
    let mut bench = Bench::new(2, 1, Faults { drop: 300, ..Faults::default() }, |_| {});
    let seconds = 2 * 3600;
    let mut number = 0;
    while bench.now < seconds * SECOND {
        if bench.dice.chance(20) {
            bench.send(0, 1, Lane::Eager, &bytes(number, 30));
            number += 1;
        }
        bench.run_for(SECOND / 8);
    }
    let probes: u64 = bench.ends.iter().map(|end| end.link.counters().probes).sum();
    assert!(probes > seconds, "{probes}");
    for end in &bench.ends {
        assert_eq!((end.link.counters().downs, end.reports.len()), (0, 0));
    }
    bench.settle();
    bench.check(0, 1, (0..number).collect());
}

/// The host of the peer answers, which does not prove that the link is in order. The link is not down, but reports the
/// silence. A user with another link gives it up. Then it comes up again.
#[test]
fn p14_p15_a_silent_link_whose_host_answers_is_reported_and_can_be_given_up() {
    let mut bench = Bench::new(2, 1, Faults::default(), |_| {});
    bench.send(0, 1, Lane::Eager, &bytes(0, 30));
    bench.settle();
    let to = bench.ends[0].to[1];
    let now = Some(Instant::from_nanos(bench.now));
    bench.until("it answers", |bench| bench.ends[0].link.answered_since(to, now));
    assert!(!bench.ends[0].link.give_up(to, GiveUp::Link), "it is in order");
    bench.shared.borrow_mut().hosts_answer = true;
    bench.faults(|faults| faults.silent = true);
    let since = bench.now;
    bench.ends[0].silences = 0; // the other links were told to connect, too
    assert!(bench.try_send(0, 1, Lane::Eager, &bytes(1, 30)).is_ok());
    bench.until("it is reported", |bench| bench.ends[0].silences != 0);
    assert!((3 * SECOND..5 * SECOND + SECOND / 10).contains(&(bench.now - since)), "{}", bench.now - since);
    bench.run_for(10 * SECOND);
    let silences = bench.ends[0].silences;
    assert!((20..400).contains(&silences), "told of again, {silences} times in 10 s");
    assert!(bench.ends[0].reports.is_empty());
    assert!(!bench.ends[0].link.answered_since(to, Some(Instant::from_nanos(since))));

    assert!(bench.ends[0].link.give_up(to, GiveUp::Link));
    assert_eq!(bench.try_send(0, 1, Lane::Control, &bytes(99, 8)), Err(SendError::Unreachable));
    assert!(bench.ends[0].link.next_unacked(to).is_some());
    bench.run_for(SECOND);
    assert!(bench.ends[0].reports.is_empty(), "the user that gave it up knows");
    bench.faults(|faults| faults.silent = false);
    bench.until("it is back", |bench| matches!(bench.ends[0].reports[..], [Event::Up(_)]));
    bench.settle();
    bench.check(0, 1, vec![0, 1]);

    // When the host does not answer either, the link goes down as usual.
    bench.faults(|faults| faults.silent = true);
    bench.run_for(20 * SECOND);
    assert_eq!(is_down(&bench, 1), None);
    bench.shared.borrow_mut().hosts_answer = false;
    bench.until("the host does not answer", |bench| (0..2).all(|end| is_down(bench, end) == Some(Lost::TimedOut)));
}

/// Without heartbeats, too, a link whose peer's host answers reports the silence now and then, not with each poll.
#[test]
fn p14_p15_a_silent_link_without_heartbeats_is_reported_now_and_then() {
    let mut bench = Bench::new(2, 1, Faults::default(), |config| config.heartbeat = Duration::ZERO);
    bench.send(0, 1, Lane::Eager, &bytes(0, 30));
    bench.settle();
    bench.shared.borrow_mut().hosts_answer = true;
    bench.faults(|faults| faults.silent = true);
    bench.ends[0].silences = 0;
    assert!(bench.try_send(0, 1, Lane::Eager, &bytes(1, 30)).is_ok());
    let end = bench.now + 15 * SECOND;
    while bench.now < end && bench.ends[0].silences < 400 {
        bench.step();
    }
    let silences = bench.ends[0].silences;
    assert!((20..400).contains(&silences), "told of {silences} times in 10 s");
    assert!(bench.ends[0].reports.is_empty());
}

/// A link whose peer may compute never counts as dead by itself. A user with another link that hears the peer gives it up.
/// Before that, the link probes the peer once more, so that a peer that has just begun to answer keeps its link.
#[test]
fn p14_p15_silence_alone_is_no_failure_where_a_peer_may_compute() {
    let mut bench = Bench::new(2, 1, Faults::default(), |config| {
        (config.patient, config.heartbeat) = (true, Duration::ZERO);
    });
    bench.send(0, 1, Lane::Eager, &bytes(0, 30));
    bench.settle();
    assert_eq!(std::mem::take(&mut bench.ends[0].silences), 1, "so that others greet it as well");
    bench.faults(|faults| faults.silent = true);
    bench.run_for(60 * SECOND);
    assert_eq!(bench.ends[0].silences, 0, "nothing is owed");
    let (to, since) = (bench.ends[0].to[1], bench.now);
    assert!(bench.try_send(0, 1, Lane::Eager, &bytes(1, 30)).is_ok());
    bench.until("it is reported", |bench| bench.ends[0].silences != 0);
    let took = bench.now - since;
    assert!((5 * SECOND..5 * SECOND + SECOND / 10).contains(&took), "{took}");
    bench.run_for(600 * SECOND);
    let silences = bench.ends[0].silences;
    assert!((400..800).contains(&silences), "told of ever less often, {silences} times in 600 s");
    assert!(bench.ends[0].reports.is_empty());
    let since = Some(Instant::from_nanos(since));
    assert!(!bench.ends[0].link.answered_since(to, since));

    // The peer answers in time, and the time starts again.
    assert!(!bench.ends[0].link.give_up(to, GiveUp::Link), "probed once more");
    bench.faults(|faults| faults.silent = false);
    bench.until("it answers", |bench| bench.ends[0].link.answered_since(to, since));
    bench.settle();
    bench.check(0, 1, vec![0, 1]);
    bench.faults(|faults| faults.silent = true);
    assert!(bench.try_send(0, 1, Lane::Eager, &bytes(2, 30)).is_ok());
    bench.run_for(6 * SECOND);
    let due = bench.ends[0].due;
    assert!(!bench.ends[0].link.give_up(to, GiveUp::Link), "as the first time");
    bench.until("another link is to hear it once more", |bench| bench.ends[0].due > due);
    assert!(bench.ends[0].link.give_up(to, GiveUp::Link));
    bench.faults(|faults| faults.silent = false);
    bench.until("it is back", |bench| matches!(bench.ends[0].reports[..], [Event::Up(_)]));
    bench.settle();
    bench.check(0, 1, vec![2]);
}

/// A frame that was on its way for long tells nothing of the peer's present state. A peer that stands still loses none of its
/// other links by it.
#[test]
fn p14_p15_late_frames_are_no_sign_of_life() {
    for patient in [false, true] {
        let mut bench = Bench::new(2, 1, Faults::default(), |config| {
            if patient {
                (config.patient, config.heartbeat) = (true, Duration::ZERO);
            }
        });
        bench.shared.borrow_mut().hosts_answer = true;
        bench.send(0, 1, Lane::Eager, &bytes(0, 30));
        bench.settle();
        let to = bench.ends[0].to[1];
        bench.faults(|faults| faults.delay = 20 * SECOND);
        bench.send(1, 0, Lane::Eager, &bytes(1, 30));
        bench.faults(|faults| (faults.delay, faults.silent) = (0, true));
        let since = Some(Instant::from_nanos(bench.now));
        bench.run_for(19 * SECOND);
        assert!(bench.ends[0].got.is_empty());
        bench.until("the frame has arrived", |bench| !bench.ends[0].got.is_empty());
        for _ in 0..100 {
            assert!(!bench.ends[0].link.answered_since(to, since), "it says nothing of what came after it");
            bench.run_for(SECOND / 10);
        }
        bench.faults(|faults| faults.silent = false);
        bench.until("it answers", |bench| bench.ends[0].link.answered_since(to, since));
        bench.settle();
        bench.check(1, 0, vec![1]);
    }
}

/// However seldom a peer polls, one answer is enough: an answer to the query, or to a later probe if that answer was lost.
#[test]
fn p14_p15_a_peer_that_polls_seldom_is_heard() {
    let mut bench = patient();
    let to = bench.ends[0].to[1];
    for round in 0..5 {
        let since = Some(Instant::from_nanos(bench.now));
        for second in 0..20 {
            bench.faults(|faults| faults.silent = second <= 4 * round);
            bench.now += SECOND;
            while bench.poll(0) {}
            assert!(!bench.ends[0].link.answered_since(to, since));
        }
        // The peer polls once.
        while bench.poll(1) {}
        bench.now += SECOND / 1000;
        while bench.poll(0) {}
        assert!(bench.ends[0].link.answered_since(to, since));
        assert!(
            !bench.ends[0].link.answered_since(to, Some(Instant::from_nanos(bench.now))),
            "nothing was asked after this"
        );
    }
}

/// The begin of a handshake is reported, too. The other links know nothing of it for as long as a handshake may take.
#[test]
fn p14_p15_a_handshake_that_begins_is_not_given_up() {
    let mut bench = Bench::new(2, 1, Faults { silent: true, ..Faults::default() }, |_| {});
    bench.run_for(SECOND);
    let since = bench.now;
    assert_eq!(bench.try_send(0, 1, Lane::Eager, &bytes(0, 30)), Err(SendError::Busy));
    bench.until("it is reported", |bench| bench.ends[0].silences == 1);
    assert_eq!(bench.ends[0].due, None);
    bench.until("it is reported again", |bench| bench.ends[0].silences == 2);
    assert!((5 * SECOND..10 * SECOND).contains(&(bench.now - since)), "{}", bench.now - since);
    assert!(bench.ends[0].due.is_some_and(|due| (since..bench.now).contains(&due.as_nanos())));
}

/// The asking link may have been polled, and so have learnt the time, later than the asked one.
#[test]
fn p14_p15_a_query_counts_from_when_it_was_sent() {
    let mut bench = patient();
    let (to, since) = (bench.ends[0].to[1], Some(Instant::from_nanos(bench.now + 1000)));
    assert!(!bench.ends[0].link.answered_since(to, since));
    bench.run_for(SECOND / 1000);
    assert!(bench.ends[0].link.answered_since(to, since));
}

/// However long an answer is on its way, the query is not repeated so soon that no answer ever counts.
#[test]
fn p14_p15_a_peer_that_is_far_away_is_heard() {
    let mut bench = patient();
    let to = bench.ends[0].to[1];
    bench.faults(|faults| faults.delay = 12 * SECOND / 5);
    for _ in 0..5 {
        let since = bench.now;
        while !bench.ends[0].link.answered_since(to, Some(Instant::from_nanos(since))) {
            bench.run_for(SECOND);
            assert!(bench.now - since < 8 * SECOND);
        }
        assert!(bench.now - since > 4 * SECOND);
    }
}

/// Two ends that are connected. Either may compute.
fn patient() -> Bench {
    let mut bench = Bench::new(2, 1, Faults::default(), |config| {
        (config.patient, config.heartbeat) = (true, Duration::ZERO);
    });
    bench.send(0, 1, Lane::Eager, &bytes(0, 30));
    bench.settle();
    bench
}

/// A peer that has failed is noticed in the configured time, whatever happened before.
#[test]
fn p15_a_failed_peer_is_noticed_in_five_seconds() {
    for (busy, seed) in [(false, 1), (true, 2), (false, 3)] {
        let mut bench = Bench::new(2, seed, Faults { drop: 100 * (seed as u32 - 1), ..Faults::default() }, |_| {});
        for number in 0..20 {
            bench.send(0, 1, Lane::Eager, &bytes(number, 30));
            bench.run_for(SECOND / 3);
        }
        bench.settle();
        bench.faults(|faults| faults.silent = true);
        let since = bench.now;
        if busy {
            assert!(bench.try_send(0, 1, Lane::Eager, &bytes(99, 30)).is_ok());
        }
        bench.until("it is noticed", |bench| (0..2).all(|end| is_down(bench, end).is_some()));
        let took = bench.now - since;
        assert!((3 * SECOND..5 * SECOND + SECOND / 10).contains(&took), "{took}");
    }
}

/// A caller that did not poll for a while, too short for a new grace period, reads the frames that arrived meanwhile before a
/// peer counts as dead, whenever timers are run.
#[test]
fn p15_a_peer_whose_answer_is_unread_is_not_failed() {
    for turns in 0..64 {
        let mut bench = Bench::new(2, 1, Faults::default(), |config| config.heartbeat = Duration::ZERO);
        bench.send(0, 1, Lane::Eager, &bytes(0, 30));
        bench.settle();
        (0..turns).for_each(|_| _ = bench.poll(0));
        for (end, pause) in [(0, 1000 * SECOND), (1, SECOND / 100), (1, SECOND / 100), (0, 2 * SECOND)] {
            bench.now += pause;
            if pause == 1000 * SECOND {
                assert!(bench.try_send(0, 1, Lane::Eager, &bytes(1, 30)).is_ok());
            }
            while bench.poll(end) {}
        }
        assert!(bench.ends[0].reports.is_empty(), "after {turns} polls");
        bench.settle();
        bench.check(0, 1, vec![0, 1]);
    }
}

/// The same where the caller could not read all frames several times in a row.
#[test]
fn p15_pauses_do_not_count_as_time_to_listen() {
    let mut bench = Bench::new(3, 1, Faults::default(), |config| config.heartbeat = Duration::ZERO);
    for end in 1..3 {
        bench.send(0, end, Lane::Eager, &bytes(0, 30));
        bench.send(end, 0, Lane::Eager, &bytes(0, 30));
    }
    bench.settle();
    // The frames of another peer come first, and there are many.
    while bench.try_send(2, 0, Lane::Eager, &bytes(1, 30)).is_ok() {}
    assert!(bench.try_send(0, 1, Lane::Eager, &bytes(1, 30)).is_ok());
    for _ in 0..2 {
        bench.now += SECOND / 100;
        while bench.poll(1) {} // it acknowledges
    }
    for _ in 0..4 {
        bench.now += 2 * SECOND;
        bench.ends[0].link.work.turn = 63; // timers are run first
        bench.poll(0);
        assert!(bench.ends[0].reports.is_empty() && bench.ends[0].link.work.more);
    }
    bench.settle();
    assert!(bench.ends[0].reports.is_empty());
}

/// A peer that sends more frames than are read does not put off the end of another peer for long.
#[test]
fn p15_a_failed_peer_is_noticed_under_a_flood_from_another() {
    let mut bench = Bench::new(3, 1, Faults::default(), |_| {});
    for end in 1..3 {
        bench.send(0, end, Lane::Eager, &bytes(0, 30));
        bench.send(end, 0, Lane::Eager, &bytes(0, 30));
    }
    bench.settle();
    let since = bench.now;
    while is_down(&bench, 0).is_none() {
        bench.now += SECOND / 1000;
        while bench.try_send(2, 0, Lane::Eager, &bytes(1, 30)).is_ok() {}
        while bench.poll(2) {}
        bench.poll(0);
        assert!(bench.now - since < 9 * SECOND);
    }
    assert!(matches!(bench.ends[0].reports[..], [Event::Down(Peer(11), Lost::TimedOut)]));
    assert!(bench.ends[0].link.work.more, "it always had more events");
}

/// A link goes down again before its user was told that it is up. The user is told of both, in order.
#[test]
fn p14_an_up_is_reported_before_the_down_that_follows_it() {
    let mut bench = Bench::new(2, 1, Faults::default(), |_| {});
    bench.send(0, 1, Lane::Eager, &bytes(0, 100));
    bench.settle();
    bench.shared.borrow_mut().cut(0, 1);
    bench.until("both are told", |bench| is_down(bench, 0).is_some() && is_down(bench, 1).is_some());
    let (at, link) = (bench.ends[0].to[1].0, &mut bench.ends[0].link);
    link.peers.paths[at as usize].session.known_to_peer = false;
    link.on_heard(at);
    link.set_down(at, DownReason::Broken);
    let told = [link.next_report(), link.next_report(), link.next_report()];
    assert!(matches!(told, [Some(Event::Up(Peer(11))), Some(Event::Down(Peer(11), Lost::Broken)), None]), "{told:?}");
    bench.ends[0].reports.clear();
    bench.until("both are back", |bench| is_up(bench, 1) && matches!(bench.ends[0].reports[..], [Event::Up(_)]));
}
