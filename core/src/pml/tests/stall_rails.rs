//! Peers that are connected and make no progress, over special rails: several links of which one is dead, a rail that is not
//! connected yet, a rail that rarely asks the kernel, a rail that is never idle.

use std::{boxed::Box, vec::Vec};

use super::basic::{WIDE, from, memory, over};
use super::failover::{Cables, Pair};
use crate::arena::Arena;
use crate::convertor::Span;
use crate::pml::*;
use crate::rail::loopback::{self, Hub};
use crate::rail::testing::link::LinkFailure;
use crate::rail::testing::{Answer, rails};
use crate::rail::{
    Copied, DeviceMemory, Event, Failover, FastPath, Frame, FullRail, Liveness, Lost, Peer, Rail, RequestCache, Short,
    SingleCopy,
};
use crate::time::{Duration, Instant};

const TIMEOUT: u64 = 1_000_000;

fn at(now: u64) -> Instant {
    Instant::from_nanos(now)
}

/// Engines of which the first one has a stall time-out.
fn engines<R: FullRail>(rails: Vec<R>) -> Vec<Pml<'static, [R; 1]>> {
    let mut engines = over(rails, WIDE);
    engines[0].set_stall_timeout(Duration::from_nanos(TIMEOUT));
    engines
}

fn wait_for<R: Rails>(engine: &mut Pml<'static, R>, peer: u32) -> Request {
    let pattern = from(peer, 5);
    // SAFETY: the memory is leaked.
    unsafe { engine.irecv(pattern, Span::contiguous(memory(8).as_mut_ptr(), 8)) }.unwrap()
}

/// Sends something to peer 1, and waits for its answer.
fn await_acquaintance<R: Rails>(engine: &mut Pml<'static, R>) {
    // SAFETY: the memory is static.
    let sent = unsafe { engine.isend(Peer(1), 1, 9, Mode::Standard, Span::of(b"we have met")) };
    assert!(sent.is_ok());
    wait_for(engine, 1);
}

/// The first link is dead, and neither side has noticed: it delivers neither keepalives nor replies.
#[test]
fn p7_p14_a_peer_answers_by_the_links_that_are_left() {
    for directions in [[true; 2], [true, false], [false, true]] {
        let mut pair = Pair::<Cables>::new(WIDE, 3, None);
        pair.engines[0].set_stall_timeout(Duration::from_nanos(TIMEOUT));
        pair.fail_link(0, LinkFailure { directions, polls_until_down: [u32::MAX; 2], ..LinkFailure::CLEAN });
        let request = wait_for(&mut pair.engines[0], 1);
        for now in (0..10 * TIMEOUT).step_by(TIMEOUT as usize / 16) {
            for _ in 0..1200 {
                for engine in pair.engines.iter_mut() {
                    engine.progress(at(now));
                }
            }
            assert!(!pair.engines[0].is_lost(Peer(1)), "{directions:?} at {now}");
        }
        assert_eq!(pair.engines[0].test(request), None);
    }
}

/// A link without frames in flight goes down late, after keepalives have taken the other links.
#[test]
fn p7_p14_an_idle_link_that_goes_down_restarts_no_count() {
    for used in [false, true] {
        let mut pair = Pair::<Cables>::new(WIDE, 3, None);
        assert_eq!(pair.send(0, 9, Mode::Standard, b"we have met"), Sending::Complete);
        if !used {
            pair.engines[0].rails_mut().0[2].window = 0; // its connection is never made
        }
        pair.engines[0].set_stall_timeout(Duration::from_nanos(TIMEOUT));
        wait_for(&mut pair.engines[0], 1);
        let mut lost = None;
        for now in (1..4 * TIMEOUT).step_by(TIMEOUT as usize / 16) {
            if now > TIMEOUT - TIMEOUT / 8 && pair.engines[0].counters().links_down == 0 {
                pair.fail_link(2, LinkFailure::CLEAN);
            }
            for _ in 0..1200 {
                pair.engines[0].progress(at(now)); // the other one is stopped
            }
            lost = lost.or(pair.engines[0].is_lost(Peer(1)).then_some(now));
        }
        let lost = lost.expect("given up");
        let bound = if used { 2 * TIMEOUT..5 * TIMEOUT / 2 } else { TIMEOUT..3 * TIMEOUT / 2 };
        assert!(bound.contains(&lost), "used {used}: {lost}");
    }
}

/// No keepalive could be sent to a peer that is not connected, so it is not given up.
#[test]
fn p7_a_peer_that_is_not_connected_yet_is_not_given_up() {
    let rails = rails(2);
    let script = rails[0].script.clone();
    script.borrow_mut().always = Some(Answer::Busy);
    let mut engines = engines(rails);
    wait_for(&mut engines[0], 1);
    let mut pass = |from: u64, to: u64| {
        for now in (from..to).step_by(TIMEOUT as usize / 16) {
            for _ in 0..8 {
                engines[0].progress(at(now));
            }
            if engines[0].is_lost(Peer(1)) {
                return Some(now);
            }
        }
        None
    };
    assert_eq!(pass(1, 10 * TIMEOUT), None);
    script.borrow_mut().always = None;
    let lost = pass(10 * TIMEOUT, 20 * TIMEOUT).expect("now it was asked, and does not answer");
    assert!((11 * TIMEOUT..12 * TIMEOUT).contains(&lost), "{lost}");
}

/// A keepalive that finds no room at a check leaves as soon as there is some: a live peer answers before the next check.
#[test]
fn p7_a_peer_that_answers_is_not_given_up_though_there_is_no_room_at_any_check() {
    let rails = rails(2);
    let script = rails[0].script.clone();
    let mut engines = engines(rails);
    await_acquaintance(&mut engines[0]);
    let mut looks = 0;
    for now in (1..10 * TIMEOUT).step_by(TIMEOUT as usize / 64) {
        let due = engines[0].poll_at().is_some_and(|due| due <= at(now));
        looks += u32::from(due);
        script.borrow_mut().always = due.then_some(Answer::Busy);
        for _ in 0..8 {
            for engine in &mut engines {
                engine.progress(at(now));
            }
        }
        assert!(!engines[0].is_lost(Peer(1)), "at {now}, after {looks} looks");
    }
    assert!(looks >= 36, "{looks}");
}

/// As above, for a caller that sleeps whenever it may: a keepalive without room does not wait until the next check.
#[test]
fn p7_a_peer_that_answers_is_not_given_up_by_a_caller_that_sleeps_between_checks() {
    let rails = rails(2);
    let script = rails[0].script.clone();
    let mut engines = engines(rails);
    await_acquaintance(&mut engines[0]);
    let (mut now, mut naps) = (1, 0);
    while now < 10 * TIMEOUT {
        script.borrow_mut().always = engines[0].poll_at().is_some_and(|due| due <= at(now)).then_some(Answer::Busy);
        while engines[0].progress(at(now)) + engines[1].progress(at(now)) != 0 {}
        assert!(!engines[0].is_lost(Peer(1)), "at {now}");
        let nap = now + TIMEOUT / 64;
        now = if engines[0].arm() { engines[0].poll_at().unwrap().as_nanos() } else { nap };
        naps += u32::from(now == nap);
    }
    assert!((36..80).contains(&naps), "{naps} naps at 40 looks");
}

/// A rail with special behaviour.
struct Odd {
    rail: loopback::Rail<'static>,
    /// Polls between two looks at what has arrived.
    every: u32,
    polls: u32,
    /// Delivers short frames on the fast path.
    quick: bool,
    last: Option<Frame>,
    other: Option<Event>,
}

macro_rules! below {
    ($self:expr, $rail:ident => $call:expr) => {
        match $self {
            Odd { rail: $rail, .. } => $call,
        }
    };
}

impl Rail for Odd {
    crate::forward_rail!(below, except poll);

    fn poll(&mut self, now: Instant) -> Option<Event> {
        if self.other.is_some() {
            return self.other.take();
        }
        self.polls += 1;
        if self.polls.is_multiple_of(self.every) { self.rail.poll(now) } else { None }
    }
}

impl FastPath for Odd {
    crate::forward_rail!(FastPath: below, except poll_short, poll_eager, poll_copied, poll_again, is_idle);

    fn poll_short(&mut self, tag: u8) -> Option<Short> {
        if !self.quick || self.other.is_some() {
            return None;
        }
        match self.rail.poll(Instant::ZERO)? {
            Event::Frame(frame) if frame.tag == tag && frame.short().is_some() => {
                // The body is read in place, in the frame that is kept.
                self.last.insert(frame).short()
            }
            other => {
                self.other = Some(other);
                None
            }
        }
    }

    fn poll_eager(&mut self, _tag: u8) -> Option<Short> {
        None
    }

    fn poll_copied(&mut self, _except: u8, _into: &mut [u8]) -> Option<Copied> {
        None
    }

    fn poll_again(&mut self) -> Option<Frame> {
        self.last.take()
    }

    fn is_idle(&mut self) -> bool {
        false
    }
}

impl RequestCache for Odd {
    crate::forward_rail!(RequestCache: below);
}

impl SingleCopy for Odd {
    crate::forward_rail!(SingleCopy: below);
}

impl DeviceMemory for Odd {
    crate::forward_rail!(DeviceMemory: below);
}

impl Failover for Odd {
    crate::forward_rail!(Failover: below);
}

impl Liveness for Odd {
    crate::forward_rail!(Liveness: below);
}

fn odd(count: u32, every: u32, quick: bool) -> Vec<Pml<'static, [Odd; 1]>> {
    let hub: &'static Hub<'static> =
        Box::leak(Box::new(Hub::new(&mut Arena::new(memory(Hub::cost(count, 8, 512))), count, 8, 512).unwrap()));
    let rail = |end| Odd { rail: hub.rail(end).unwrap(), every, polls: 0, quick, last: None, other: None };
    engines((0..count).map(rail).collect())
}

/// A poll without an event does not prove that the kernel has no frame.
#[test]
fn p7_rails_are_armed_before_a_peer_is_given_up() {
    for phase in 0..4 {
        let mut engines = odd(2, 4, false);
        for _ in 0..phase {
            engines[0].progress(at(1));
        }
        wait_for(&mut engines[0], 1);
        for round in 1..200 {
            // The first engine computes, and polls now and then. The other one answers at once.
            engines[0].progress(at(round * (TIMEOUT / 4 + 1)));
            for _ in 0..16 {
                engines[1].progress(at(1));
            }
            assert!(!engines[0].is_lost(Peer(1)), "phase {phase}, round {round}");
        }
    }
}

/// Other peers send all the time, so the rail is never idle.
#[test]
fn p7_a_stopped_peer_is_lost_in_time_though_others_send_all_the_time() {
    for quick in [false, true] {
        let mut engines = odd(3, 1, quick);
        engines[0].progress(at(1));
        wait_for(&mut engines[0], 1);
        let mut word = [0; 8];
        let lost = (1..10 * TIMEOUT).step_by(100).find(|now| {
            let pattern = from(2, 9);
            // SAFETY: the buffers stay until the end.
            let request = unsafe { engines[0].irecv(pattern, Span::contiguous(word.as_mut_ptr(), 8)) }.unwrap();
            // SAFETY: as above.
            let _ = unsafe { engines[2].isend(Peer(0), 1, 9, Mode::Standard, Span::of(b"go on...")) }.unwrap();
            while engines[0].test(request).is_none() {
                assert_ne!(engines[0].progress(at(*now)), 0, "it is never idle");
            }
            engines[2].progress(at(1));
            engines[0].is_lost(Peer(1))
        });
        let lost = lost.expect("given up");
        assert!((TIMEOUT..TIMEOUT * 3 / 2).contains(&lost), "quick {quick}: {lost}");
        assert_eq!(engines[0].why_lost(Peer(1)), Some(Lost::Stalled));
        assert!(!engines[0].is_lost(Peer(2)));
    }
}
