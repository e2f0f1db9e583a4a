//! Tests of liveness: links that go down and come up again.

use super::mesh::{Mesh, bytes};
use super::wire::Faults;
use crate::link::path::DownReason;
use crate::rail::*;
use crate::time::{Duration, Instant};
use std::vec;

const SECOND: u64 = 1_000_000_000;

fn is_down(mesh: &Mesh, end: usize) -> Option<Lost> {
    match mesh.ends[end].reports.last() {
        Some(Event::Down(_, why)) => Some(*why),
        _ => None,
    }
}

fn is_up(mesh: &Mesh, end: usize) -> bool {
    matches!(mesh.ends[end].reports.last(), None | Some(Event::Up(_)))
}

#[test]
fn p15_a_silent_link_goes_down_and_an_answer_brings_it_up_with_all_frames_once() {
    for first in [0, u64::from(u16::MAX) - 3] {
        let mut mesh = Mesh::new(2, 1, Faults::default(), |config| config.first_number = first);
        for number in 0..20 {
            mesh.send(0, 1, Lane::Bulk, &bytes(number, 8 + number as usize * 400));
        }
        mesh.settle();
        mesh.faults(|faults| faults.silent = true);
        let since = mesh.now;
        for number in 20..30 {
            assert!(mesh.try_send(0, 1, Lane::Bulk, &bytes(number, 8 + number as usize * 300)).is_ok());
        }
        mesh.until("the silence is noticed", |mesh| is_down(mesh, 0).is_some());
        assert_eq!(is_down(&mesh, 0), Some(Lost::TimedOut));
        assert!((4 * SECOND..8 * SECOND).contains(&(mesh.now - since)), "{}", mesh.now - since);
        assert_eq!(mesh.try_send(0, 1, Lane::Control, &bytes(99, 8)), Err(SendError::Unreachable));
        mesh.run_for(20 * SECOND);
        assert_eq!(mesh.ends[0].reports.len(), 1, "its end is told once");
        mesh.faults(|faults| faults.silent = false);
        mesh.until("it is back", |mesh| is_up(mesh, 0) && is_up(mesh, 1));
        for number in 30..40 {
            mesh.send(0, 1, Lane::Eager, &bytes(number, 100));
        }
        mesh.settle();
        mesh.check(0, 1, (0..40).collect());
    }
}

#[test]
fn p15_a_raw_rail_that_loses_the_peer_is_added_again() {
    for seed in 0..8 {
        let faults = Faults { drop: 50, late_body: 300, in_place: 500, jitter: 5000, ..Faults::default() };
        let mut mesh = Mesh::new(2, seed, faults, |_| {});
        let mut count = 0;
        for _ in 0..5 {
            for _ in 0..30 {
                let len = 8 + mesh.random.below(9000) as usize;
                mesh.send(0, 1, Lane::Bulk, &bytes(count, len));
                count += 1;
            }
            mesh.shared.borrow_mut().cut(0, 1);
            mesh.until("both are told", |mesh| is_down(mesh, 0).is_some() && is_down(mesh, 1).is_some());
            assert_eq!(is_down(&mesh, 0), Some(Lost::Broken));
            mesh.until("both are back", |mesh| is_up(mesh, 0) && is_up(mesh, 1));
        }
        mesh.settle();
        mesh.check(0, 1, (0..count).collect());
        assert_eq!(mesh.ends[0].link.counters().downs, 5);
    }
}

/// The first send comes before the first poll, by which a link learns the time. A clock that starts with a large value does not
/// count as silence of the peer.
#[test]
fn p15_a_clock_that_begins_far_on_is_no_silence() {
    let mut mesh = Mesh::new(2, 1, Faults::default(), |config| config.dead_after = Duration::from_secs(1 << 30));
    mesh.now = 28_000 * SECOND;
    mesh.send(0, 1, Lane::Eager, &bytes(0, 100));
    mesh.settle();
    mesh.check(0, 1, (0..1).collect());
    assert!(mesh.ends.iter().all(|end| end.reports.is_empty()));
}

/// A wire fails in one direction. The peer receives nothing, so it would never acknowledge a frame, although its frames arrive.
#[test]
fn p15_a_peer_that_hears_nothing_is_down_for_both_sides() {
    let mut mesh = Mesh::new(2, 1, Faults::default(), |_| {});
    mesh.send(0, 1, Lane::Bulk, &bytes(0, 100));
    mesh.settle();
    mesh.shared.borrow_mut().without_arrivals = Some(1);
    assert!(mesh.try_send(0, 1, Lane::Bulk, &bytes(1, 100)).is_ok());
    mesh.until("both have noticed", |mesh| is_down(mesh, 0).is_some() && is_down(mesh, 1).is_some());
    mesh.shared.borrow_mut().restore();
    mesh.until("both are back", |mesh| is_up(mesh, 0) && is_up(mesh, 1));
    mesh.settle();
    mesh.check(0, 1, vec![0, 1]);
}

/// A link that is idle but for a frame now and then, at a loss of 30 % in each direction, never counts as dead.
#[test]
fn p15_a_link_that_loses_a_third_stays_up_for_hours() {
    let mut mesh = Mesh::new(2, 1, Faults { drop: 300, ..Faults::default() }, |_| {});
    let seconds = 2 * 3600;
    let mut number = 0;
    while mesh.now < seconds * SECOND {
        if mesh.random.chance(20) {
            mesh.send(0, 1, Lane::Eager, &bytes(number, 30));
            number += 1;
        }
        mesh.run_for(SECOND / 8);
    }
    let probes: u64 = mesh.ends.iter().map(|end| end.link.counters().probes).sum();
    assert!(probes > seconds, "{probes}");
    for end in &mesh.ends {
        assert_eq!((end.link.counters().downs, end.reports.len()), (0, 0));
    }
    mesh.settle();
    mesh.check(0, 1, (0..number).collect());
}

/// The host of the peer answers, which does not prove that the link works. The link is not down, but reports the silence. A
/// user with another link gives it up. Then it comes up again.
#[test]
fn p14_p15_a_silent_link_whose_host_answers_is_reported_and_can_be_given_up() {
    let mut mesh = Mesh::new(2, 1, Faults::default(), |_| {});
    mesh.send(0, 1, Lane::Eager, &bytes(0, 30));
    mesh.settle();
    let to = mesh.ends[0].to[1];
    let now = Some(Instant::from_nanos(mesh.now));
    mesh.until("it answers", |mesh| mesh.ends[0].link.answered_since(to, now));
    assert!(!mesh.ends[0].link.give_up(to, GiveUp::Link), "it is in order");
    mesh.shared.borrow_mut().hosts_answer = true;
    mesh.faults(|faults| faults.silent = true);
    let since = mesh.now;
    mesh.ends[0].silences = 0; // from the handshake
    assert!(mesh.try_send(0, 1, Lane::Eager, &bytes(1, 30)).is_ok());
    mesh.until("it is reported", |mesh| mesh.ends[0].silences != 0);
    assert!((3 * SECOND..5 * SECOND + SECOND / 10).contains(&(mesh.now - since)), "{}", mesh.now - since);
    mesh.run_for(10 * SECOND);
    let silences = mesh.ends[0].silences;
    assert!((20..400).contains(&silences), "told of again, {silences} times in 10 s");
    assert!(mesh.ends[0].reports.is_empty());
    assert!(!mesh.ends[0].link.answered_since(to, Some(Instant::from_nanos(since))));

    assert!(mesh.ends[0].link.give_up(to, GiveUp::Link));
    assert_eq!(mesh.try_send(0, 1, Lane::Control, &bytes(99, 8)), Err(SendError::Unreachable));
    assert!(mesh.ends[0].link.next_unacked(to).is_some());
    mesh.run_for(SECOND);
    assert!(mesh.ends[0].reports.is_empty(), "the user that gave it up knows");
    mesh.faults(|faults| faults.silent = false);
    mesh.until("it is back", |mesh| matches!(mesh.ends[0].reports[..], [Event::Up(_)]));
    mesh.settle();
    mesh.check(0, 1, vec![0, 1]);

    // When the host does not answer either, the link goes down as usual.
    mesh.faults(|faults| faults.silent = true);
    mesh.run_for(20 * SECOND);
    assert_eq!(is_down(&mesh, 1), None);
    mesh.shared.borrow_mut().hosts_answer = false;
    mesh.until("the host does not answer", |mesh| (0..2).all(|end| is_down(mesh, end) == Some(Lost::TimedOut)));
}

/// Without heartbeats, too, a link whose peer's host answers reports the silence now and then, not with each poll.
#[test]
fn p14_p15_a_silent_link_without_heartbeats_is_reported_now_and_then() {
    let mut mesh = Mesh::new(2, 1, Faults::default(), |config| config.heartbeat = Duration::ZERO);
    mesh.send(0, 1, Lane::Eager, &bytes(0, 30));
    mesh.settle();
    mesh.shared.borrow_mut().hosts_answer = true;
    mesh.faults(|faults| faults.silent = true);
    mesh.ends[0].silences = 0;
    assert!(mesh.try_send(0, 1, Lane::Eager, &bytes(1, 30)).is_ok());
    let end = mesh.now + 15 * SECOND;
    while mesh.now < end && mesh.ends[0].silences < 400 {
        mesh.step();
    }
    let silences = mesh.ends[0].silences;
    assert!((20..400).contains(&silences), "told of {silences} times in 10 s");
    assert!(mesh.ends[0].reports.is_empty());
}

/// A link whose peer may compute never counts as dead by itself. A user with another link that receives from the peer gives it
/// up. Before that, the link probes the peer once more, so that a peer that has just begun to answer keeps its link.
#[test]
fn p14_p15_silence_alone_is_no_failure_where_a_peer_may_compute() {
    let mut mesh = Mesh::new(2, 1, Faults::default(), |config| {
        (config.patient, config.heartbeat) = (true, Duration::ZERO);
    });
    mesh.send(0, 1, Lane::Eager, &bytes(0, 30));
    mesh.settle();
    assert_eq!(std::mem::take(&mut mesh.ends[0].silences), 1, "so that others greet it as well");
    mesh.faults(|faults| faults.silent = true);
    mesh.run_for(60 * SECOND);
    assert_eq!(mesh.ends[0].silences, 0, "nothing is owed");
    let (to, since) = (mesh.ends[0].to[1], mesh.now);
    assert!(mesh.try_send(0, 1, Lane::Eager, &bytes(1, 30)).is_ok());
    mesh.until("it is reported", |mesh| mesh.ends[0].silences != 0);
    let took = mesh.now - since;
    assert!((5 * SECOND..5 * SECOND + SECOND / 10).contains(&took), "{took}");
    mesh.run_for(600 * SECOND);
    let silences = mesh.ends[0].silences;
    assert!((400..800).contains(&silences), "told of ever less often, {silences} times in 600 s");
    assert!(mesh.ends[0].reports.is_empty());
    let since = Some(Instant::from_nanos(since));
    assert!(!mesh.ends[0].link.answered_since(to, since));

    // The peer answers in time, and the time starts again.
    assert!(!mesh.ends[0].link.give_up(to, GiveUp::Link), "probed once more");
    mesh.faults(|faults| faults.silent = false);
    mesh.until("it answers", |mesh| mesh.ends[0].link.answered_since(to, since));
    mesh.settle();
    mesh.check(0, 1, vec![0, 1]);
    mesh.faults(|faults| faults.silent = true);
    assert!(mesh.try_send(0, 1, Lane::Eager, &bytes(2, 30)).is_ok());
    mesh.run_for(6 * SECOND);
    let due = mesh.ends[0].due;
    assert!(!mesh.ends[0].link.give_up(to, GiveUp::Link), "as the first time");
    mesh.until("another link is to hear it once more", |mesh| mesh.ends[0].due > due);
    assert!(mesh.ends[0].link.give_up(to, GiveUp::Link));
    mesh.faults(|faults| faults.silent = false);
    mesh.until("it is back", |mesh| matches!(mesh.ends[0].reports[..], [Event::Up(_)]));
    mesh.settle();
    mesh.check(0, 1, vec![2]);
}

/// A frame that was on its way for long says nothing about the peer's present state. It does not make a stopped peer lose its
/// other links.
#[test]
fn p14_p15_late_frames_are_no_answer() {
    for patient in [false, true] {
        let mut mesh = Mesh::new(2, 1, Faults::default(), |config| {
            if patient {
                (config.patient, config.heartbeat) = (true, Duration::ZERO);
            }
        });
        mesh.shared.borrow_mut().hosts_answer = true;
        mesh.send(0, 1, Lane::Eager, &bytes(0, 30));
        mesh.settle();
        let to = mesh.ends[0].to[1];
        mesh.faults(|faults| faults.delay = 20 * SECOND);
        mesh.send(1, 0, Lane::Eager, &bytes(1, 30));
        mesh.faults(|faults| (faults.delay, faults.silent) = (0, true));
        let since = Some(Instant::from_nanos(mesh.now));
        mesh.run_for(19 * SECOND);
        assert!(mesh.ends[0].got.is_empty());
        mesh.until("the frame has arrived", |mesh| !mesh.ends[0].got.is_empty());
        for _ in 0..100 {
            assert!(!mesh.ends[0].link.answered_since(to, since), "it says nothing of what came after it");
            mesh.run_for(SECOND / 10);
        }
        mesh.faults(|faults| faults.silent = false);
        mesh.until("it answers", |mesh| mesh.ends[0].link.answered_since(to, since));
        mesh.settle();
        mesh.check(1, 0, vec![1]);
    }
}

/// However seldom a peer polls, one answer is enough: an answer to the query, or to a later probe if that answer was lost.
#[test]
fn p14_p15_a_peer_that_polls_seldom_is_heard() {
    let mut mesh = patient();
    let to = mesh.ends[0].to[1];
    for round in 0..5 {
        let since = Some(Instant::from_nanos(mesh.now));
        for second in 0..20 {
            mesh.faults(|faults| faults.silent = second <= 4 * round);
            mesh.now += SECOND;
            while mesh.poll(0) {}
            assert!(!mesh.ends[0].link.answered_since(to, since));
        }
        // The peer polls once.
        while mesh.poll(1) {}
        mesh.now += SECOND / 1000;
        while mesh.poll(0) {}
        assert!(mesh.ends[0].link.answered_since(to, since));
        assert!(
            !mesh.ends[0].link.answered_since(to, Some(Instant::from_nanos(mesh.now))),
            "nothing was asked after this"
        );
    }
}

/// The begin of a handshake is reported, too. The other links do not learn of it as long as a handshake may take.
#[test]
fn p14_p15_a_handshake_that_begins_is_not_given_up() {
    let mut mesh = Mesh::new(2, 1, Faults { silent: true, ..Faults::default() }, |_| {});
    mesh.run_for(SECOND);
    let since = mesh.now;
    assert_eq!(mesh.try_send(0, 1, Lane::Eager, &bytes(0, 30)), Err(SendError::Busy));
    mesh.until("it is reported", |mesh| mesh.ends[0].silences == 1);
    assert_eq!(mesh.ends[0].due, None);
    mesh.until("it is reported again", |mesh| mesh.ends[0].silences == 2);
    assert!((5 * SECOND..10 * SECOND).contains(&(mesh.now - since)), "{}", mesh.now - since);
    assert!(mesh.ends[0].due.is_some_and(|due| (since..mesh.now).contains(&due.as_nanos())));
}

/// The silent link may have been polled later than the link that is asked, so that its clock is ahead.
#[test]
fn p14_p15_a_query_counts_from_when_it_was_sent() {
    let mut mesh = patient();
    let (to, since) = (mesh.ends[0].to[1], Some(Instant::from_nanos(mesh.now + 1000)));
    assert!(!mesh.ends[0].link.answered_since(to, since));
    mesh.run_for(SECOND / 1000);
    assert!(mesh.ends[0].link.answered_since(to, since));
}

/// However long an answer is on its way, the query is not repeated so soon that no answer ever counts.
#[test]
fn p14_p15_a_peer_that_is_far_away_is_heard() {
    let mut mesh = patient();
    let to = mesh.ends[0].to[1];
    mesh.faults(|faults| faults.delay = 12 * SECOND / 5);
    for _ in 0..5 {
        let since = mesh.now;
        while !mesh.ends[0].link.answered_since(to, Some(Instant::from_nanos(since))) {
            mesh.run_for(SECOND);
            assert!(mesh.now - since < 8 * SECOND);
        }
        assert!(mesh.now - since > 4 * SECOND);
    }
}

/// Two connected ends, with `Config::patient`: either peer may compute.
fn patient() -> Mesh {
    let mut mesh = Mesh::new(2, 1, Faults::default(), |config| {
        (config.patient, config.heartbeat) = (true, Duration::ZERO);
    });
    mesh.send(0, 1, Lane::Eager, &bytes(0, 30));
    mesh.settle();
    mesh
}

/// A peer that has failed is noticed in the configured time, whatever happened before.
#[test]
fn p15_a_failed_peer_is_noticed_in_five_seconds() {
    for (busy, seed) in [(false, 1), (true, 2), (false, 3)] {
        let mut mesh = Mesh::new(2, seed, Faults { drop: 100 * (seed as u32 - 1), ..Faults::default() }, |_| {});
        for number in 0..20 {
            mesh.send(0, 1, Lane::Eager, &bytes(number, 30));
            mesh.run_for(SECOND / 3);
        }
        mesh.settle();
        mesh.faults(|faults| faults.silent = true);
        let since = mesh.now;
        if busy {
            assert!(mesh.try_send(0, 1, Lane::Eager, &bytes(99, 30)).is_ok());
        }
        mesh.until("it is noticed", |mesh| (0..2).all(|end| is_down(mesh, end).is_some()));
        let took = mesh.now - since;
        assert!((3 * SECOND..5 * SECOND + SECOND / 10).contains(&took), "{took}");
    }
}

/// A caller that did not poll for a while, too short for a new grace period, reads the frames that arrived meanwhile before a
/// peer counts as dead, whenever timers are run.
#[test]
fn p15_a_peer_whose_answer_is_unread_is_not_failed() {
    for turns in 0..64 {
        let mut mesh = Mesh::new(2, 1, Faults::default(), |config| config.heartbeat = Duration::ZERO);
        mesh.send(0, 1, Lane::Eager, &bytes(0, 30));
        mesh.settle();
        (0..turns).for_each(|_| _ = mesh.poll(0));
        for (end, pause) in [(0, 1000 * SECOND), (1, SECOND / 100), (1, SECOND / 100), (0, 2 * SECOND)] {
            mesh.now += pause;
            if pause == 1000 * SECOND {
                assert!(mesh.try_send(0, 1, Lane::Eager, &bytes(1, 30)).is_ok());
            }
            while mesh.poll(end) {}
        }
        assert!(mesh.ends[0].reports.is_empty(), "after {turns} polls");
        mesh.settle();
        mesh.check(0, 1, vec![0, 1]);
    }
}

/// The same where the caller could not read all frames several times in a row.
#[test]
fn p15_pauses_do_not_count_as_time_to_listen() {
    let mut mesh = Mesh::new(3, 1, Faults::default(), |config| config.heartbeat = Duration::ZERO);
    for end in 1..3 {
        mesh.send(0, end, Lane::Eager, &bytes(0, 30));
        mesh.send(end, 0, Lane::Eager, &bytes(0, 30));
    }
    mesh.settle();
    // The frames of another peer come first, and there are many.
    while mesh.try_send(2, 0, Lane::Eager, &bytes(1, 30)).is_ok() {}
    assert!(mesh.try_send(0, 1, Lane::Eager, &bytes(1, 30)).is_ok());
    for _ in 0..2 {
        mesh.now += SECOND / 100;
        while mesh.poll(1) {} // it acknowledges
    }
    for _ in 0..4 {
        mesh.now += 2 * SECOND;
        mesh.ends[0].link.work.turn = 63; // timers are run first
        mesh.poll(0);
        assert!(mesh.ends[0].reports.is_empty() && mesh.ends[0].link.work.more);
    }
    mesh.settle();
    assert!(mesh.ends[0].reports.is_empty());
}

/// A peer that sends more frames than are read does not delay the report of another peer's failure for long.
#[test]
fn p15_a_failed_peer_is_noticed_under_a_flood_from_another() {
    let mut mesh = Mesh::new(3, 1, Faults::default(), |_| {});
    for end in 1..3 {
        mesh.send(0, end, Lane::Eager, &bytes(0, 30));
        mesh.send(end, 0, Lane::Eager, &bytes(0, 30));
    }
    mesh.settle();
    let since = mesh.now;
    while is_down(&mesh, 0).is_none() {
        mesh.now += SECOND / 1000;
        while mesh.try_send(2, 0, Lane::Eager, &bytes(1, 30)).is_ok() {}
        while mesh.poll(2) {}
        mesh.poll(0);
        assert!(mesh.now - since < 9 * SECOND);
    }
    assert!(matches!(mesh.ends[0].reports[..], [Event::Down(Peer(11), Lost::TimedOut)]));
    assert!(mesh.ends[0].link.work.more, "it always had more events");
}

/// A link goes down again before `Event::Up` was reported to its user. The user gets both events, in their order.
#[test]
fn p14_an_up_is_reported_before_the_down_that_follows_it() {
    let mut mesh = Mesh::new(2, 1, Faults::default(), |_| {});
    mesh.send(0, 1, Lane::Eager, &bytes(0, 100));
    mesh.settle();
    mesh.shared.borrow_mut().cut(0, 1);
    mesh.until("both are told", |mesh| is_down(mesh, 0).is_some() && is_down(mesh, 1).is_some());
    let (at, link) = (mesh.ends[0].to[1].0, &mut mesh.ends[0].link);
    link.peers.paths[at as usize].session.known_to_peer = false;
    link.on_heard(at);
    link.set_down(at, DownReason::Broken);
    let told = [link.next_report(), link.next_report(), link.next_report()];
    assert!(matches!(told, [Some(Event::Up(Peer(11))), Some(Event::Down(Peer(11), Lost::Broken)), None]), "{told:?}");
    mesh.ends[0].reports.clear();
    mesh.until("both are back", |mesh| is_up(mesh, 1) && matches!(mesh.ends[0].reports[..], [Event::Up(_)]));
}
