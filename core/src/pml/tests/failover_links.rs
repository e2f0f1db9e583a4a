//! The tests of `failover` over real links, on wires that lose, duplicate, reorder and change frames all the time, and break.

use std::cell::RefCell;
use std::rc::Rc;
use std::vec::Vec;
use std::{boxed::Box, vec};

use super::basic::{WIDE, bytes};
use super::failover::{Built, Case, Counts, Pair, Topology, exchange, exchanges};
use crate::arena::Arena;
use crate::link::tests::wire::{Faults, Wire, WireFailure, WireState, wires};
use crate::link::{self, Crc32c, Link};
use crate::pml::*;
use crate::rail::{Lost, Peer, Rail};
use crate::time::{Duration, Instant};

const MILLISECOND: u64 = 1_000_000;

/// The failure of a wire, the time after which the wire is restored, and whether another wire fails then.
#[derive(Clone, Copy, Debug)]
struct Fault {
    how: WireFailure,
    restored_after: Option<u64>,
    then_other_fails: bool,
    /// The hosts still answer through the failed wire.
    hosts_answer: bool,
}

const FAULTS: [Fault; 9] = {
    let silent = Fault { how: WireFailure::Silent, restored_after: None, then_other_fails: false, hosts_answer: false };
    [
        silent,
        Fault { how: WireFailure::Broken, ..silent },
        Fault { how: WireFailure::NoArrivals(0), ..silent },
        Fault { how: WireFailure::NoArrivals(1), ..silent },
        // The wire is restored before either side has noticed; the next two are restored afterwards.
        Fault { restored_after: Some(5 * MILLISECOND), ..silent },
        Fault {
            how: WireFailure::NoArrivals(1),
            restored_after: Some(30 * MILLISECOND),
            then_other_fails: true,
            ..silent
        },
        Fault { how: WireFailure::Broken, restored_after: Some(15 * MILLISECOND), then_other_fails: true, ..silent },
        // The answer of a host proves nothing about the wire.
        Fault { hosts_answer: true, ..silent },
        Fault {
            how: WireFailure::NoArrivals(0),
            restored_after: Some(30 * MILLISECOND),
            then_other_fails: true,
            hosts_answer: true,
        },
    ]
};

/// The number of frames over a restored wire after which both ends know that it works, even if some are lost.
const FRAMES_UNTIL_RESTORED: usize = 16;

/// Wires in virtual time.
struct Wires {
    shared: Vec<Rc<RefCell<WireState>>>,
    now: u64,
    fault: Option<(usize, Fault)>,
    failed_at: Option<u64>,
    /// A restored wire, the frame from which on both ends know that it works, and the failure of the other wire then.
    returns: Option<(usize, usize, Fault)>,
}

impl Topology for Wires {
    type Rail = Link<'static, Wire, Crc32c>;
    type Fault = Fault;
    const LATE: u32 = 200;

    fn build(count: usize, seed: Option<u64>) -> Built<Self> {
        let (mut shared, mut ends, mut memory) = (vec![], [vec![], vec![]], vec![]);
        for cable in 0..count {
            let faults = match seed {
                None => Faults::default(),
                Some(_) => Faults {
                    drop: 40,
                    double: 30,
                    corrupt: 20,
                    busy: 30,
                    jitter: 3_000,
                    late_body: 300,
                    in_place: 500,
                    ..Faults::default()
                },
            };
            let wires = wires(2, seed.unwrap_or(1).wrapping_mul(31).wrapping_add(cable as u64), faults, true);
            shared.push(wires[0].shared.clone());
            for (end, wire) in wires.into_iter().enumerate() {
                let config = link::Config {
                    first_number: u64::from(u16::MAX) - 5,
                    peers: 1,
                    window: 16,
                    slots: 12,
                    control_slots: 4,
                    long_slots: 1,
                    deliveries: 8,
                    card_bytes: 8,
                    ack_delay: Duration::from_nanos(5_000),
                    least_timeout: Duration::from_nanos(50_000),
                    initial_timeout: Duration::from_nanos(200_000),
                    most_timeout: Duration::from_millis(1),
                    dead_after: Duration::from_millis(8),
                    hello_within: Duration::from_millis(60),
                    heartbeat: Duration::from_millis(2),
                    probe: Duration::from_millis(1),
                    most_probe: Duration::from_millis(4),
                    ..link::Config::new(cable as u8 + 10 * end as u8, 1_000 + end as u64, wire.attributes())
                };
                let block = Box::into_raw(vec![0u8; config.bytes(&wire)].into_boxed_slice());
                memory.push(block);
                // SAFETY: freed after the link.
                let arena = &mut Arena::new(unsafe { &mut *block });
                ends[end].push(Link::new(wire, Crc32c, config, arena).unwrap());
            }
        }
        (Self { shared, now: 1, fault: None, failed_at: None, returns: None }, ends, memory)
    }

    fn plan(&mut self, step: u64, cable: usize, fault: Fault) {
        self.shared.iter().for_each(|shared| shared.borrow_mut().hosts_answer = fault.hosts_answer);
        self.shared[cable].borrow_mut().fails_after = Some((step as usize, fault.how));
        self.fault = Some((cable, fault));
    }

    fn steps(&self) -> u64 {
        self.shared.iter().map(|shared| shared.borrow().log.len() as u64).max().unwrap_or(0)
    }

    fn turn(&mut self, events: u32, due: Option<Instant>) -> Instant {
        let due = due.map_or(u64::MAX, Instant::as_nanos);
        self.now = if events == 0 { due.clamp(self.now + 1_000, self.now + MILLISECOND) } else { self.now + 1_000 };
        if let Some((cable, fault)) = self.fault {
            if self.failed_at.is_none() && self.shared[cable].borrow().fails_after.is_none() {
                self.failed_at = Some(self.now);
            }
            if let (Some(failed_at), Some(after)) = (self.failed_at, fault.restored_after)
                && self.now >= failed_at + after
            {
                self.shared[cable].borrow_mut().restore();
                self.fault = None;
                if fault.then_other_fails {
                    let seen = self.shared[cable].borrow().log.len();
                    self.returns = Some((cable, seen + FRAMES_UNTIL_RESTORED, fault));
                }
            }
        }
        if let Some((cable, seen, fault)) = self.returns
            && self.shared[cable].borrow().log.len() >= seen
        {
            self.returns = None;
            let other = (cable + 1) % self.shared.len();
            self.fault = Some((other, Fault { restored_after: None, then_other_fails: false, ..fault }));
            self.failed_at = None;
            let left = self.shared[other].borrow().log.len() + 30;
            self.shared[other].borrow_mut().fails_after = Some((left, fault.how));
        }
        Instant::from_nanos(self.now)
    }

    fn unfinished(rail: &Self::Rail) -> usize {
        let [kept, coming] = rail.used();
        (kept + coming) as usize
    }

    fn handed_over(_: &Self::Rail) -> u64 {
        0
    }

    fn held(rail: &Self::Rail) -> usize {
        rail.held()
    }
}

/// The exchanges, with messages so long that links leave their bodies in place.
fn longer() -> Vec<(&'static str, Config, Vec<Case>)> {
    let mut all = exchanges();
    for (name, config, cases) in &mut all {
        let times = if *name == "stream" { 20 } else { 7 };
        cases.iter_mut().for_each(|case| case.len *= times);
        config.unit_bytes = 512;
    }
    all
}

fn fail_everywhere(names: &[&str], bad: bool) -> Counts {
    let mut all = Counts::default();
    for (name, config, cases) in longer().into_iter().filter(|(name, ..)| names.contains(name)) {
        for count in [2, 3] {
            let seed = |step: u64| bad.then_some(step);
            let steps = exchange::<Wires>(config, &cases, count, None, seed(1)).steps;
            for step in 0..=steps {
                let cable = step as usize % count;
                let turn = (step as usize * 5 + count) % FAULTS.len();
                for (_, fault) in FAULTS.iter().enumerate().filter(|(at, _)| !cfg!(debug_assertions) || *at == turn) {
                    let run = || exchange::<Wires>(config, &cases, count, Some((step, cable, *fault)), seed(step));
                    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
                        Ok(seen) => all.add(&seen),
                        Err(_) => panic!("{name}, {count} links: step {step} of {steps}, cable {cable}, {fault:?}"),
                    }
                }
            }
        }
    }
    assert!(all.moved > 20 && all.returns > 5, "nothing was put to the test: {} {}", all.moved, all.returns);
    all
}

const ALL: [&str; 6] = ["eager", "late rendezvous", "stream", "synchronous", "held", "probed with credit"];

#[test]
fn p14_p15_b37_links_fail_and_are_restored_at_every_frame() {
    fail_everywhere(&ALL, false);
}

#[test]
fn p14_p15_b37_links_over_bad_wires_fail_and_are_restored_at_every_frame() {
    let seen = fail_everywhere(&ALL, true);
    assert!(seen.duplicates > 0);
}

/// A stopped peer is silent on all links at once. Its host answers: the peer is not lost, and goes on later.
#[test]
fn p7_p14_a_peer_is_lost_with_its_last_link_unless_its_host_answers() {
    for count in [1, 2, 3] {
        for hosts_answer in [true, false] {
            let mut pair = Pair::<Wires>::new(WIDE, count, None);
            // More messages than all links take at once.
            let (data, mut into) = (bytes(2_000_000, 3), vec![0; 2_000_000]);
            let receive = pair.recv(1, 0, 1, &mut into);
            let Sending::Pending(send) = pair.send(0, 1, Mode::Standard, &data) else { panic!("longer than a frame") };
            while pair.engines[0].counters().fragments_sent < 6 {
                pair.turn();
            }
            for shared in &pair.topology.shared {
                let mut shared = shared.borrow_mut();
                shared.hosts_answer = hosts_answer;
                shared.fail(WireFailure::Silent);
            }
            let end = pair.topology.now + 100 * MILLISECOND;
            let mut before = 0;
            while pair.topology.now < end {
                if pair.topology.now + 50 * MILLISECOND < end {
                    before = pair.events;
                }
                pair.turn();
            }
            assert_eq!(pair.events, before, "that a link is silent is nothing to who waits");
            let lost = [0, 1].map(|at| pair.engines[at].counters().lost);
            assert_eq!(lost, if hosts_answer { [0, 0] } else { [1, 1] }, "{count} links");
            pair.topology.shared.iter().for_each(|shared| shared.borrow_mut().restore());
            if hosts_answer {
                assert!(pair.finish(0, send).is_ok() && pair.finish(1, receive).is_ok());
                assert!(into == data);
                pair.assert_clean("after the pause");
            } else {
                assert_eq!(pair.finish(0, send), Err(Failure::PeerFailed(Peer(1))));
                assert_eq!(pair.finish(1, receive), Err(Failure::PeerFailed(Peer(0))));
            }
        }
    }
}

/// Frames that were sent before the peer was stopped, and that one link delivers late, are no sign that the other links are dead.
#[test]
fn p7_p14_late_frames_cost_no_link_of_a_stopped_peer() {
    for late in 0..3 {
        let mut pair = Pair::<Wires>::new(WIDE, 3, None);
        let (data, mut into) = (bytes(2_000_000, 3), vec![0; 2_000_000]);
        let receive = pair.recv(1, 0, 1, &mut into);
        let Sending::Pending(send) = pair.send(0, 1, Mode::Standard, &data) else { panic!("longer than a frame") };
        while pair.engines[0].counters().fragments_sent < 6 {
            pair.turn();
        }
        pair.topology.shared[late].borrow_mut().faults.delay = 12 * MILLISECOND;
        for _ in 0..20 {
            pair.turn();
        }
        for shared in &pair.topology.shared {
            let mut shared = shared.borrow_mut();
            shared.hosts_answer = true;
            shared.fail(WireFailure::Silent);
            shared.faults.delay = 0;
        }
        let end = pair.topology.now + 100 * MILLISECOND;
        while pair.topology.now < end {
            pair.turn();
        }
        let down = [0, 1].map(|at| pair.engines[at].counters().links_down);
        assert_eq!(down, [0, 0], "link {late} was late");
        pair.topology.shared.iter().for_each(|shared| shared.borrow_mut().restore());
        assert!(pair.finish(0, send).is_ok() && pair.finish(1, receive).is_ok());
        assert!(into == data);
        pair.assert_clean("after the pause");
    }
}

/// Links of which each is used when those before it are down.
fn one_after_the_other(count: usize) -> Pair<Wires> {
    let mut pair = Pair::<Wires>::new(WIDE, count, None);
    for at in 0..2 {
        let links = pair.engines[at].links.iter_mut().filter(|link| link.bandwidth != 0);
        links.for_each(|link| link.latency = 10 + u32::from(link.rail));
        pair.engines[at].sort_links(1 - at as u32);
    }
    pair
}

/// A peer that does not exist, and links of which at first only the first one is tried: the others are tried meanwhile.
#[test]
fn p7_p14_a_peer_that_never_connected_is_lost_in_the_time_of_one_hello() {
    const HELLO: u64 = 60 * MILLISECOND;
    for count in [1, 2, 4] {
        let mut pair = one_after_the_other(count);
        pair.topology.shared.iter().for_each(|shared| shared.borrow_mut().fail(WireFailure::Silent));
        let since = pair.topology.now;
        let Sending::Pending(send) = pair.send(0, 1, Mode::Standard, b"who is there?") else { panic!("nobody") };
        assert_eq!(pair.finish(0, send), Err(Failure::PeerFailed(Peer(1))));
        let took = pair.topology.now - since;
        assert!((HELLO..HELLO + MILLISECOND).contains(&took), "{took} ns with {count} links");
    }
}

/// Links without traffic have connected to the peer as well, and find it lost at the same time as the link with traffic.
#[test]
fn p7_p14_a_peer_is_lost_as_soon_by_links_that_were_never_used() {
    const DEAD: u64 = 8 * MILLISECOND;
    for count in [1, 2, 4] {
        for (how, hosts_answer) in
            [(WireFailure::Silent, false), (WireFailure::Silent, true), (WireFailure::Broken, false)]
        {
            let mut pair = one_after_the_other(count);
            let mut into = [0; 5];
            let receive = pair.recv(1, 0, 1, &mut into);
            let _ = pair.send(0, 1, Mode::Synchronous, b"hello");
            assert!(pair.finish(1, receive).is_ok());
            pair.turns(100);
            for (cable, shared) in pair.topology.shared.iter().enumerate() {
                let mut shared = shared.borrow_mut();
                shared.hosts_answer = hosts_answer;
                // The links after the first one report nothing by themselves.
                shared.fail(if cable == 0 { how } else { WireFailure::Silent });
            }
            let since = pair.topology.now;
            let Sending::Pending(send) = pair.send(0, 2, Mode::Synchronous, b"are you there?") else {
                panic!("nobody")
            };
            if !hosts_answer {
                assert_eq!(pair.finish(0, send), Err(Failure::PeerFailed(Peer(1))));
                let took = pair.topology.now - since;
                assert!(took < DEAD * 5 / 4, "{took} ns with {count} links, {how:?}");
                continue;
            }
            while pair.topology.now < since + 100 * DEAD {
                pair.turn();
            }
            let counters = pair.engines[0].counters();
            assert_eq!([counters.lost, counters.links_down], [0, 0], "it may be stopped");
            pair.topology.shared.iter().for_each(|shared| shared.borrow_mut().restore());
            let mut into = [0; 14];
            let receive = pair.recv(1, 0, 2, &mut into);
            assert!(pair.finish(1, receive).is_ok() && pair.finish(0, send).is_ok());
        }
    }
}

/// A side that only answers also connects by all links. So it does not have to connect when its link goes down, whether another
/// link never worked or goes down later.
#[test]
fn p7_p14_a_process_that_was_sent_something_finds_its_peer_lost_as_soon() {
    const DEAD: u64 = 8 * MILLISECOND;
    for (late, calm) in [(false, 40), (false, 2), (true, 40)] {
        let mut pair = one_after_the_other(2);
        if !late {
            pair.topology.shared[1].borrow_mut().fail(WireFailure::Silent);
        }
        let mut into = [0; 5];
        let receive = pair.recv(1, 0, 1, &mut into);
        let _ = pair.send(0, 1, Mode::Synchronous, b"hello");
        assert!(pair.finish(1, receive).is_ok());
        let until = pair.topology.now + calm * DEAD;
        while pair.topology.now < until {
            pair.turn();
        }
        pair.topology.shared.iter().for_each(|shared| shared.borrow_mut().fail(WireFailure::Silent));
        let since = pair.topology.now;
        let Sending::Pending(send) = pair.send(1, 2, Mode::Synchronous, b"are you there?") else { panic!("nobody") };
        assert_eq!(pair.finish(1, send), Err(Failure::PeerFailed(Peer(0))));
        let took = pair.topology.now - since;
        assert!(took < DEAD * 5 / 4, "{took} ns, {late} {calm}");
    }
}

/// A normal end is no failure, however early it comes, and does not wait for a link that is still connecting.
#[test]
fn p7_p14_a_goodbye_while_a_link_still_connects_is_an_end_in_good_order() {
    for turns in 0..60 {
        for (count, without_arrivals) in [(1, None), (2, None), (2, Some(0)), (2, Some(1))] {
            let mut pair = one_after_the_other(count);
            // The other links have a higher latency, or carry frames in one direction only.
            for shared in pair.topology.shared.iter().skip(1) {
                shared.borrow_mut().faults.delay = 40_000;
                without_arrivals.into_iter().for_each(|end| shared.borrow_mut().fail(WireFailure::NoArrivals(end)));
            }
            let mut into = [0; 5];
            let receive = pair.recv(1, 0, 1, &mut into);
            let _ = pair.send(0, 1, Mode::Standard, b"hello");
            assert!(pair.finish(1, receive).is_ok());
            pair.turns(turns);
            pair.engines[1].del_peer(Peer(0));
            let since = pair.topology.now;
            while pair.engines[0].why_lost(Peer(1)).is_none() {
                pair.turn();
            }
            assert_eq!(pair.engines[0].why_lost(Peer(1)), Some(Lost::Closed), "{turns} {count} {without_arrivals:?}");
            let took = pair.topology.now - since;
            assert!(took < MILLISECOND, "{took} ns, {turns} {count} {without_arrivals:?}");
        }
    }
}

/// One link does not reach the peer, and another one works: frames do not wait until the connection attempt of the first link
/// ends.
#[test]
fn p14_b37_a_link_that_never_connects_goes_down_if_another_hears_the_peer() {
    const DEAD: u64 = 8 * MILLISECOND;
    for bad in 0..3 {
        let mut pair = one_after_the_other(3);
        pair.topology.shared[bad].borrow_mut().fail(WireFailure::Silent);
        let since = pair.topology.now;
        for tag in 0..6 {
            let mut into = [0; 5];
            let receive = pair.recv(1, 0, tag, &mut into);
            let sent = pair.send(0, tag, Mode::Synchronous, b"hello");
            assert!(pair.finish(1, receive).is_ok());
            if let Sending::Pending(send) = sent {
                assert!(pair.finish(0, send).is_ok());
            }
        }
        let took = pair.topology.now - since;
        assert!(took < DEAD * 3 / 2 && (bad != 0 || took > DEAD), "{took} ns");
        while pair.topology.now < since + DEAD * 3 / 2 {
            pair.turn();
        }
        assert_eq!(pair.engines[0].counters().links_down, 1);
        pair.topology.shared[bad].borrow_mut().restore();
        while pair.engines[0].counters().links_up == 0 {
            pair.turn();
        }
    }
}
