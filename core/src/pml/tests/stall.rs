//! Peers that are connected and make no progress, in virtual time: engines that are polled, and one that is not.

use std::{vec, vec::Vec};

use super::basic::{Engine, WIDE, bytes, engines, from, pending, recv, send};
use crate::convertor::Span;
use crate::pml::matching::ANY;
use crate::pml::*;
use crate::rail::{Lost, Peer};
use crate::rma::{self, Access, Transfer};
use crate::time::{Duration, Instant};

const TIMEOUT: u64 = 1000;
const VICTIM: u32 = 1;

/// `count` engines that all have a stall time-out. Their time is 1.
fn patient(count: u32) -> Vec<Engine> {
    let mut engines = engines(count, WIDE, 8, 512);
    engines.iter_mut().for_each(|engine| engine.set_stall_timeout(Duration::from_nanos(TIMEOUT)));
    (0..64).for_each(|_| poll(&mut engines, 1, &[]));
    engines
}

/// Polls all but the stopped ones.
fn poll(engines: &mut [Engine], now: u64, stopped: &[u32]) {
    for (index, engine) in (0..).zip(engines) {
        if !stopped.contains(&index) {
            engine.progress(Instant::from_nanos(now));
        }
    }
}

/// Lets time pass in steps. In each step all but the stopped ones make progress.
fn pass(engines: &mut [Engine], from: u64, to: u64, stopped: &[u32]) {
    for now in (from..=to).step_by(10) {
        (0..16).for_each(|_| poll(engines, now, stopped));
    }
}

/// Stops the victim from time 10 on, and returns when engine 0 gives it up.
fn given_up(engines: &mut [Engine]) -> u64 {
    for now in (10..100 * TIMEOUT).step_by(10) {
        for _ in 0..16 {
            let before = engines[0].is_lost(Peer(VICTIM));
            let events = engines[0].progress(Instant::from_nanos(now));
            assert!(events != 0 || engines[0].is_lost(Peer(VICTIM)) == before, "others may wait for what has ended");
            poll(engines, now, &[0, VICTIM]);
        }
        if engines[0].is_lost(Peer(VICTIM)) {
            assert_eq!(engines[0].why_lost(Peer(VICTIM)), Some(Lost::Stalled));
            return now;
        }
    }
    panic!("never given up");
}

#[test]
fn p7_a_stopped_peer_is_lost_after_the_stall_timeout() {
    type Owes = fn(&mut Engine, &'static [u8], &'static mut [u8]) -> Request;
    let owed: [(&str, Owes); 4] = [
        ("an answer to a rendezvous", |engine, data, _| pending(send(engine, VICTIM, 5, Mode::Standard, data))),
        ("a match", |engine, data, _| pending(send(engine, VICTIM, 5, Mode::Synchronous, &data[..8]))),
        ("a message", |engine, _, into| recv(engine, from(VICTIM, 5), into)),
        ("room", |engine, data, _| {
            let short = |_| send(engine, VICTIM, 5, Mode::Standard, &data[..400]);
            let sent: Vec<Sending> = (0..100).map(short).collect();
            pending(*sent.last().unwrap())
        }),
    ];
    for (what, owes) in owed {
        let mut engines = patient(3);
        let request = owes(&mut engines[0], bytes(5000, 1).leak(), vec![0; 5000].leak());
        let at = given_up(&mut engines);
        assert!((TIMEOUT..TIMEOUT + TIMEOUT / 2).contains(&at), "{what}: {at}");
        assert_eq!(engines[0].test(request), Some(Err(Failure::PeerFailed(Peer(VICTIM)))), "{what}");
        assert!(!engines[0].is_lost(Peer(2)) && !engines[2].is_lost(Peer(VICTIM)), "{what}: nobody else noticed");
    }
}

/// Only one-sided operations and their answers were sent to the stopped peer, and there is not even room for the keepalive.
#[test]
fn p7_a_stopped_peer_is_lost_that_only_one_sided_operations_went_to() {
    const OPERATIONS: u32 = 16;
    let rma = rma::Config { regions: 1, operations: OPERATIONS, window: 16 };
    let mut engines = engines(2, Config { rma, ..WIDE }, 8, 512);
    engines.iter_mut().for_each(|engine| engine.set_stall_timeout(Duration::from_nanos(TIMEOUT)));
    (0..64).for_each(|_| poll(&mut engines, 1, &[]));
    let mut memory = [vec![0u8; 512], vec![0u8; 512]];
    let data = bytes(8, 1);
    for (at, memory) in (0..2).zip(&mut memory) {
        let other = 1 - at;
        // SAFETY: the memory outlives the engines' use of it, and no other code accesses it.
        let registered = unsafe { engines[at].register(memory.as_mut_ptr(), 512, Access::ANY, None) }.unwrap();
        let remote = engines[at].remote_memory(registered).unwrap();
        for _ in 0..OPERATIONS {
            // SAFETY: the data stays until all operations are over.
            unsafe { engines[other].begin(Peer(at as u32), Transfer::Put(Span::of(&data)), &remote, 0) }.unwrap();
        }
    }
    let at = given_up(&mut engines);
    assert!((TIMEOUT..TIMEOUT + TIMEOUT / 2).contains(&at), "{at}");
    for _ in 0..OPERATIONS {
        assert_eq!(engines[0].next_finished().map(|finished| finished.result), Some(Err(rma::Failure::Lost)));
    }
}

#[test]
fn p7_without_a_stall_timeout_a_stopped_peer_is_waited_for() {
    let mut engines = engines(2, WIDE, 8, 512);
    let request = recv(&mut engines[0], from(VICTIM, 5), &mut [0; 8]);
    pass(&mut engines, 10, 100 * TIMEOUT, &[VICTIM]);
    assert_eq!(engines[0].test(request), None);
    assert!(!engines[0].is_lost(Peer(VICTIM)) && engines[0].poll_at().is_none());
}

/// No operation waits for the stopped peer, so no keepalive is sent to it.
#[test]
fn p7_a_stopped_peer_that_owes_nothing_is_not_lost() {
    let mut engines = patient(2);
    let done = send(&mut engines[0], VICTIM, 5, Mode::Standard, b"taken from the rail by a peer that polls");
    assert!(matches!(done, Sending::Complete));
    pass(&mut engines, 10, 20, &[]);
    pass(&mut engines, 30, 10 * TIMEOUT, &[VICTIM]);
    assert!(!engines[0].is_lost(Peer(VICTIM)));
}

/// A peer that makes progress answers, however late its messages are.
#[test]
fn p7_a_peer_that_waits_itself_is_not_given_up() {
    let mut engines = patient(3);
    let data = bytes(5000, 1);
    let long = pending(send(&mut engines[0], VICTIM, 5, Mode::Standard, &data));
    let receive = recv(&mut engines[0], from(VICTIM, 6), &mut [0; 8]);
    let any = recv(&mut engines[2], from(ANY, 7), &mut [0; 8]);
    pass(&mut engines, 10, 20 * TIMEOUT, &[]);
    for (at, request) in [(0, long), (0, receive), (2, any)] {
        assert_eq!(engines[at].test(request), None);
    }
    assert!((0..3).all(|at| (0..3).all(|peer| !engines[at].is_lost(Peer(peer)))));
}

#[test]
fn p7_a_receive_from_any_source_ends_with_a_peer_that_something_was_sent_to() {
    let mut engines = patient(3);
    let _ = send(&mut engines[0], VICTIM, 9, Mode::Standard, b"we have met");
    let request = recv(&mut engines[0], from(ANY, 5), &mut [0; 8]);
    given_up(&mut engines);
    assert_eq!(engines[0].next_failed(), Some(Peer(VICTIM)), "floor 4 ends it");
    assert_eq!(engines[0].test(request), None);
    assert!(!engines[0].is_lost(Peer(2)), "it was never spoken to");
}

/// This process was stopped itself: it has not yet seen the answers that the others may have sent long ago.
#[test]
fn p7_a_process_that_was_stopped_itself_gives_no_peer_up() {
    let mut engines = patient(2);
    let request = recv(&mut engines[0], from(VICTIM, 6), &mut [0; 8]);
    for pause in 1..50 {
        let now = pause * 3 * TIMEOUT;
        poll(&mut engines, now, &[]);
        pass(&mut engines, now + 10, now + TIMEOUT / 3, &[]);
    }
    assert_eq!(engines[0].test(request), None);
    assert!(!engines[0].is_lost(Peer(VICTIM)));
}

/// A peer that is stopped for less than the time, again and again, gets all its messages across.
#[test]
fn p7_pauses_below_the_stall_timeout_harm_nothing() {
    let mut engines = patient(2);
    let (data, mut into) = (bytes(5000, 1), vec![0; 5000]);
    for round in 1..20 {
        let start = round * 2 * TIMEOUT;
        let out = pending(send(&mut engines[0], VICTIM, 5, Mode::Standard, &data));
        pass(&mut engines, start, start + TIMEOUT * 6 / 10, &[VICTIM]);
        let taken = recv(&mut engines[1], from(0, 5), &mut into);
        pass(&mut engines, start + TIMEOUT * 6 / 10, start + 2 * TIMEOUT, &[]);
        assert!(matches!(engines[0].test(out), Some(Ok(_))), "round {round}");
        assert!(matches!(engines[1].test(taken), Some(Ok(_))) && into == data);
    }
}

/// A stalled peer that runs again is lost here: its messages are dropped, and the operations with it have ended.
#[test]
fn p7_a_stalled_peer_that_goes_on_harms_no_other_peer() {
    let mut engines = patient(3);
    let (data, mut into) = (bytes(5000, 1), vec![0u8; 5000]);
    let receive = recv(&mut engines[0], from(VICTIM, 6), &mut into);
    given_up(&mut engines);
    assert!(matches!(engines[0].test(receive), Some(Err(Failure::PeerFailed(_)))));
    let used = engines[0].used();
    let late = send(&mut engines[1], 0, 6, Mode::Standard, &data);
    let _ = send(&mut engines[1], 0, 6, Mode::Standard, &data[..40]);
    pass(&mut engines, 200 * TIMEOUT, 201 * TIMEOUT, &[]);
    assert_eq!(engines[0].used(), used, "nothing of it is kept");
    assert!(into.iter().all(|byte| *byte == 0), "nothing of it is written");
    assert!(engines[1].test(pending(late)) != Some(Ok(engines_status(&data))));
    let (mut word, over) = ([0; 8], b"go on...");
    let receive = recv(&mut engines[2], from(0, 7), &mut word);
    let _ = send(&mut engines[0], 2, 7, Mode::Standard, over);
    pass(&mut engines, 202 * TIMEOUT, 203 * TIMEOUT, &[]);
    assert!(matches!(engines[2].test(receive), Some(Ok(_))) && word == *over);
}

fn engines_status(data: &[u8]) -> Status {
    Status { peer: Peer(0), tag: 6, received: data.len() as u64, delivered: data.len() as u64 }
}

/// A peer sends short messages on the fast path all the time, and never polls: its messages count as answers.
#[test]
fn p7_a_peer_that_sends_short_messages_and_never_polls_is_not_given_up_before_it_stops() {
    let mut engines = patient(2);
    let waits = recv(&mut engines[0], from(VICTIM, 6), &mut [0; 8]); // the keepalive for this receive stays unread
    let mut sent = 0;
    // The peer sends as many messages as it has credit: without a poll it gets no credit back.
    for now in (10..3 * TIMEOUT).step_by(10) {
        if now % (TIMEOUT / 5) == 0 {
            let mut word = [0; 8];
            let receive = recv(&mut engines[0], from(VICTIM, 5), &mut word);
            assert_eq!(send(&mut engines[1], 0, 5, Mode::Standard, b"a word.."), Sending::Complete);
            (0..16).for_each(|_| poll(&mut engines, now, &[VICTIM]));
            assert!(matches!(engines[0].test(receive), Some(Ok(_))), "at {now}, after {sent}");
            sent += 1;
        }
        (0..16).for_each(|_| poll(&mut engines, now, &[VICTIM]));
    }
    assert!(!engines[0].is_lost(Peer(VICTIM)) && sent > 12);
    pass(&mut engines, 3 * TIMEOUT, 5 * TIMEOUT, &[VICTIM]);
    assert_eq!(engines[0].test(waits), Some(Err(Failure::PeerFailed(Peer(VICTIM)))));
}

/// A peer is stopped in a receive from any source, and has no stall time-out of its own. When it runs again, it learns that it
/// was given up as a failure, not as a normal end.
#[test]
fn p7_a_peer_that_was_given_up_learns_it_as_a_failure() {
    let mut engines = patient(2);
    engines[1].set_stall_timeout(Duration::from_nanos(0));
    let _ = recv(&mut engines[1], from(ANY, 5), &mut [0; 8]);
    let _ = recv(&mut engines[0], from(VICTIM, 6), &mut [0; 8]);
    given_up(&mut engines);
    pass(&mut engines, 200 * TIMEOUT, 201 * TIMEOUT, &[]);
    assert_eq!(engines[1].why_lost(Peer(0)), Some(Lost::Broken));
    assert_eq!(engines[1].next_failed(), Some(Peer(0)), "floor 4 ends the receive");
}

/// A caller that sleeps must wake for the next check: `poll_at` contains its time.
#[test]
fn p7_the_next_check_is_a_deadline() {
    let mut engines = patient(2);
    let at = engines[0].poll_at().unwrap().as_nanos();
    assert!((1..=1 + TIMEOUT / 4).contains(&at), "{at}");
    engines[0].set_stall_timeout(Duration::from_nanos(0));
    assert_eq!(engines[0].poll_at(), None);
}
