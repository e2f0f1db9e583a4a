//! Links that go down, stall and are up again at every step of every exchange, and rails that are disabled.

use core::fmt;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::vec::Vec;
use std::{boxed::Box, vec};

use super::basic::{WIDE, bytes};
use crate::arena::Arena;
use crate::convertor::Span;
use crate::pml::matching::{ANY, Pattern};
use crate::pml::*;
use crate::rail::testing::link::{Link, LinkFailure, Net, links};
use crate::rail::{Failover, FullRail, Peer, Rail};
use crate::time::Instant;

/// Cables, the links of each host over them, and the memory of the links.
pub(super) type Built<G> = (G, [Vec<<G as Topology>::Rail>; 2], Vec<*mut [u8]>);

/// Cables between two hosts, and the links over them.
pub(super) trait Topology: Sized {
    type Rail: FullRail;
    /// The failure of a cable.
    type Fault: Copy + fmt::Debug;
    /// Turns after which late receives are posted.
    const LATE: u32;

    /// Makes `count` links for each host, and their memory.
    fn build(count: usize, seed: Option<u64>) -> Built<Self>;

    /// Plans the failure of a cable at a step.
    fn plan(&mut self, step: u64, cable: usize, fault: Self::Fault);

    /// Steps so far: of one cable, or of all.
    fn steps(&self) -> u64;

    /// Returns the time of the next turn, after a turn with `events` events. `due`: the time by which a call of progress is due.
    fn turn(&mut self, events: u32, due: Option<Instant>) -> Instant;

    /// Frames that a link has not finished, and deliveries that it has begun and another link was to finish.
    fn unfinished(rail: &Self::Rail) -> usize;
    fn handed_over(rail: &Self::Rail) -> u64;

    /// Frames that the engine has taken from the link and not handled yet. If such a frame migrates and the link is asked whether
    /// it has arrived, the link can only say yes. That may turn out to be wrong, since the body may be bad.
    fn held(_: &Self::Rail) -> usize {
        0
    }
}

pub(super) struct Set<R>(pub Vec<R>);

impl<R: FullRail> Rails for Set<R> {
    type Rail = R;

    fn count(&self) -> usize {
        self.0.len()
    }

    fn rail(&self, index: usize) -> Option<&R> {
        self.0.get(index)
    }

    fn rail_mut(&mut self, index: usize) -> Option<&mut R> {
        self.0.get_mut(index)
    }
}

type Engine<R> = Pml<'static, Set<R>>;

/// Two engines with some links between them. They free their memory.
pub(super) struct Pair<G: Topology> {
    pub engines: ManuallyDrop<[Engine<G::Rail>; 2]>,
    memory: Vec<*mut [u8]>,
    pub topology: G,
    turns: u64,
    /// The sum of what progress returned in all turns.
    pub events: u64,
    now: Instant,
}

impl<G: Topology> Drop for Pair<G> {
    fn drop(&mut self) {
        // SAFETY: neither is used after this; the memory came from boxes, and only the engines and their rails used it.
        unsafe {
            ManuallyDrop::drop(&mut self.engines);
            self.memory.iter().for_each(|memory| drop(Box::from_raw(*memory)));
        }
    }
}

impl<G: Topology> Pair<G> {
    pub fn new(config: Config, count: usize, seed: Option<u64>) -> Self {
        let (topology, ends, mut memory) = G::build(count, seed);
        let engines = ends.map(|rails| {
            let size = config.bytes(&rails.iter().map(Rail::attributes).collect::<Vec<_>>());
            let block = Box::into_raw(vec![0u8; size].into_boxed_slice());
            memory.push(block);
            // SAFETY: freed after the engine.
            Pml::new(config, &mut Arena::new(unsafe { &mut *block }), Set(rails)).unwrap()
        });
        let engines = ManuallyDrop::new(engines);
        let mut pair = Self { engines, memory, topology, turns: 0, events: 0, now: Instant::ZERO };
        pair.introduce();
        pair
    }

    fn introduce(&mut self) {
        for at in 0..2 {
            let (params, peer) = (self.engines[1 - at].params(), Peer(1 - at as u32));
            let cards: Vec<_> = self.engines[1 - at].rails().0.iter().map(|rail| rail.card().to_vec()).collect();
            self.engines[at].add_peer(peer, &params, |index, rail| rail.add_peer(peer, &cards[index])).unwrap();
        }
    }

    pub fn turn(&mut self) {
        let first = (self.turns % 2) as usize;
        self.turns += 1;
        let mut events = 0;
        for at in [first, 1 - first] {
            events += self.engines[at].progress(self.now);
            assert!(self.engines[at].rails().0.iter().all(|rail| G::held(rail) == 0), "no frame waits for the engine");
        }
        let due = self.engines.iter().filter_map(Pml::poll_at).min();
        self.events += u64::from(events);
        self.now = self.topology.turn(events, due);
    }

    pub fn turns(&mut self, count: u32) {
        (0..count).for_each(|_| self.turn());
    }

    pub fn send(&mut self, from: usize, tag: u32, mode: Mode, data: &[u8]) -> Sending {
        // SAFETY: the tests keep their buffers until the end.
        unsafe { self.engines[from].isend(Peer(1 - from as u32), 1, tag, mode, Span::of(data)) }.unwrap()
    }

    pub fn recv(&mut self, at: usize, source: u32, tag: u32, into: &mut [u8]) -> Request {
        let pattern = Pattern { context: 1, source, tag };
        // SAFETY: the tests keep their buffers until the end.
        unsafe { self.engines[at].irecv(pattern, Span::contiguous(into.as_mut_ptr(), into.len())) }.unwrap()
    }

    pub fn finish(&mut self, at: usize, request: Request) -> Result<Status, Failure> {
        for _ in 0..20_000 {
            if let Some(outcome) = self.engines[at].test(request) {
                return outcome;
            }
            self.turn();
        }
        panic!("no progress: {:?} {:?}", self.engines[0].counters(), self.engines[1].counters());
    }

    fn used(&self) -> [[u32; 3]; 2] {
        [0, 1].map(|at| self.engines[at].used())
    }

    /// Checks that nothing is left: no request, no message, no frame in a link.
    pub fn assert_clean(&mut self, name: &str) {
        let unfinished = |pair: &Self| {
            let links = pair.engines.iter().flat_map(|engine| &engine.rails().0);
            links.map(G::unfinished).sum::<usize>()
        };
        for _ in 0..2_000 {
            if unfinished(self) == 0 && self.used() == [[0; 3]; 2] {
                break;
            }
            self.turn();
        }
        assert_eq!((self.used(), unfinished(self)), ([[0; 3]; 2], 0), "{name}");
        for engine in self.engines.iter_mut() {
            assert_eq!(engine.iprobe(Pattern { context: 1, source: ANY, tag: ANY }), None, "{name}");
            let peers = engine.peers.iter().filter(|peer| peer.route.links != 0);
            assert!(peers.clone().all(|peer| peer.granted.kept_envelopes == 0 && peer.held.is_empty()), "{name}");
        }
    }
}

/// Cables that fail and are restored.
pub(super) struct Cables {
    pub net: Rc<RefCell<Net>>,
    fault: Option<(usize, Fault)>,
    count: usize,
    turns: u32,
    failed_at: Option<u32>,
}

impl Topology for Cables {
    type Rail = Link;
    type Fault = Fault;
    const LATE: u32 = 30;

    fn build(count: usize, seed: Option<u64>) -> Built<Self> {
        let (net, ends) = links(count);
        net.borrow_mut().shuffle = seed;
        (Self { net, fault: None, count, turns: 0, failed_at: None }, ends, Vec::new())
    }

    fn plan(&mut self, step: u64, cable: usize, fault: Fault) {
        self.net.borrow_mut().plan.push((step, cable, fault.failure));
        self.fault = Some((cable, fault));
    }

    fn steps(&self) -> u64 {
        self.net.borrow().steps
    }

    fn turn(&mut self, _: u32, _: Option<Instant>) -> Instant {
        self.turns += 1;
        if let Some((cable, fault)) = self.fault {
            let mut net = self.net.borrow_mut();
            if self.failed_at.is_none() && net.plan.is_empty() {
                self.failed_at = Some(self.turns);
            }
            let since = self.failed_at.map(|failed_at| self.turns - failed_at);
            if fault.restored_after.is_some() && since == fault.restored_after {
                net.restore(cable);
            }
            if fault.then_other_fails && since == fault.restored_after.map(|after| after + 8) {
                net.fail_link((cable + 1) % self.count, fault.failure);
            }
        }
        Instant::ZERO
    }

    fn unfinished(rail: &Link) -> usize {
        rail.unfinished()
    }

    fn handed_over(rail: &Link) -> u64 {
        rail.handed_over.into()
    }
}

impl Pair<Cables> {
    pub fn fail_link(&mut self, cable: usize, failure: LinkFailure) {
        self.topology.net.borrow_mut().fail_link(cable, failure);
    }
}

/// How a message is received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reception {
    /// A receive is posted for it at the beginning, or some turns later.
    Early,
    Late,
    /// A matched probe takes it some turns later.
    Probed,
    /// It is sent in ready mode, and there is no receive.
    NotReady,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub from: usize,
    pub len: usize,
    pub mode: Mode,
    pub reception: Reception,
}

const fn case(from: usize, len: usize, mode: Mode, reception: Reception) -> Case {
    Case { from, len, mode, reception }
}

/// The exchanges: name, configuration, messages. Late receives are posted in reverse order.
pub(super) fn exchanges() -> Vec<(&'static str, Config, Vec<Case>)> {
    use Mode::*;
    use Reception::*;
    let both = |lens: &[usize], mode, reception| -> Vec<Case> {
        lens.iter().flat_map(|len| [case(0, *len, mode, reception), case(1, *len, mode, reception)]).collect()
    };
    let none = Config { unexpected: 0, units: 0, ..WIDE };
    let two = Config { unexpected: 8, units: 8, ..WIDE };
    vec![
        ("eager", WIDE, both(&[0, 10, 32, 50, 66], Standard, Early)),
        ("unexpected", WIDE, both(&[0, 10, 32, 50, 66], Standard, Late)),
        ("rendezvous", WIDE, both(&[67, 100, 130, 300], Standard, Early)),
        ("late rendezvous", WIDE, both(&[67, 100, 130, 300], Standard, Late)),
        ("stream", WIDE, [both(&[1500], Standard, Early), both(&[700, 10], Complete, Early)].concat()),
        ("synchronous", WIDE, [both(&[0, 20, 300], Synchronous, Late), both(&[0, 20], Synchronous, Early)].concat()),
        ("credit", two, both(&[10, 20, 60, 0, 100, 5], Standard, Late)),
        ("held", none, [both(&[10, 10, 200], Standard, Late), both(&[10, 90], Standard, Early)].concat()),
        ("probed", none, both(&[10, 80], Standard, Probed)),
        ("probed with credit", two, both(&[10, 80, 200], Standard, Probed)),
        ("ready", WIDE, [both(&[10, 100], Ready, NotReady), both(&[10, 100], Ready, Early)].concat()),
    ]
}

/// The failure of a cable, the number of turns after which the cable is restored, and whether another cable fails then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    failure: LinkFailure,
    restored_after: Option<u32>,
    then_other_fails: bool,
}

pub(super) const FAULTS: [Fault; 8] = {
    let clean = Fault { failure: LinkFailure::CLEAN, restored_after: None, then_other_fails: false };
    [
        clean,
        // The two sides notice at different times. Frames in flight arrive, their acknowledgements do not.
        Fault {
            failure: LinkFailure { loses_in_flight: false, polls_until_down: [3, 40], ..LinkFailure::CLEAN },
            ..clean
        },
        // The link refuses frames before it is reported down.
        Fault {
            failure: LinkFailure { refuses_sends: true, polls_until_down: [30, 6], ..LinkFailure::CLEAN },
            ..clean
        },
        // The cable fails in one direction only.
        Fault {
            failure: LinkFailure { directions: [true, false], polls_until_down: [20, 5], ..LinkFailure::CLEAN },
            ..clean
        },
        Fault {
            failure: LinkFailure {
                directions: [false, true],
                loses_in_flight: false,
                polls_until_down: [4, 50],
                ..LinkFailure::CLEAN
            },
            ..clean
        },
        // The link is up again in the middle. One side may not even have noticed the failure.
        Fault { restored_after: Some(12), ..clean },
        Fault {
            failure: LinkFailure { polls_until_down: [2, u32::MAX], ..LinkFailure::CLEAN },
            restored_after: Some(30),
            ..clean
        },
        // The cables fail one after the other.
        Fault { restored_after: Some(25), then_other_fails: true, ..clean },
    ]
};

/// Counts of an exchange.
#[derive(Default)]
pub(super) struct Counts {
    pub steps: u64,
    pub moved: u64,
    pub duplicates: u64,
    pub returns: u64,
    pub handed_over: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Self) {
        self.moved += other.moved;
        self.duplicates += other.duplicates;
        self.returns += other.returns;
        self.handed_over += other.handed_over;
    }
}

/// Runs an exchange over some links, one of which fails at a step, and checks all guarantees.
pub(super) fn exchange<G: Topology>(
    config: Config,
    cases: &[Case],
    count: usize,
    fault: Option<(u64, usize, G::Fault)>,
    seed: Option<u64>,
) -> Counts {
    let mut pair = Pair::<G>::new(config, count, seed);
    if let Some((step, cable, fault)) = fault {
        pair.topology.plan(step, cable, fault);
    }
    let mut data: Vec<_> = cases.iter().enumerate().map(|(tag, case)| bytes(case.len, tag as u8)).collect();
    let want = data.clone();
    let mut into: Vec<_> = cases.iter().map(|case| vec![0xaa; case.len]).collect();
    let mut receives: Vec<Option<Request>> = vec![None; cases.len()];
    let mut ended = vec![[false; 2]; cases.len()]; // sent, received
    for (tag, case) in cases.iter().enumerate().filter(|(_, case)| case.reception == Reception::Early) {
        let source = if tag % 4 < 2 { ANY } else { case.from as u32 };
        receives[tag] = Some(pair.recv(1 - case.from, source, tag as u32, &mut into[tag]));
    }
    if cases.iter().any(|case| case.mode == Mode::Ready) {
        pair.turns(1);
    }
    let mut sends = Vec::new();
    for (tag, case) in cases.iter().enumerate() {
        sends.push(match pair.send(case.from, tag as u32, case.mode, &data[tag]) {
            Sending::Pending(request) => Some(request),
            Sending::Complete => {
                data[tag].fill(0xdd); // the memory is ours again
                ended[tag][0] = true;
                None
            }
        });
    }
    let mut turn = 0u32;
    loop {
        if turn >= G::LATE {
            for (tag, case) in cases.iter().enumerate().rev() {
                if receives[tag].is_some() {
                    continue;
                }
                let (at, number) = (1 - case.from, tag as u32);
                match case.reception {
                    Reception::Late => receives[tag] = Some(pair.recv(at, case.from as u32, number, &mut into[tag])),
                    Reception::Probed => {
                        let pattern = Pattern { context: 1, source: ANY, tag: number };
                        if let Ok(Some((message, _))) = pair.engines[at].improbe(pattern) {
                            let sink = Span::contiguous(into[tag].as_mut_ptr(), case.len);
                            // SAFETY: the buffer lives until the request is over.
                            receives[tag] = Some(unsafe { pair.engines[at].imrecv(message, sink) }.unwrap());
                        }
                    }
                    _ => {}
                }
            }
        }
        pair.turn();
        turn += 1;
        for (tag, case) in cases.iter().enumerate() {
            if let Some(request) = sends[tag]
                && let Some(outcome) = pair.engines[case.from].test(request)
            {
                match case.reception {
                    Reception::NotReady => assert_eq!(outcome, Err(Failure::NotReady(Peer(1 - case.from as u32)))),
                    _ => assert!(outcome.is_ok(), "{case:?} {outcome:?}"),
                }
                data[tag].fill(0xdd);
                (sends[tag], ended[tag][0]) = (None, true);
            }
            if let Some(request) = receives[tag]
                && !ended[tag][1]
                && let Some(outcome) = pair.engines[1 - case.from].test(request)
            {
                let status = outcome.unwrap();
                assert_eq!(
                    (status.tag, status.received, status.delivered),
                    (tag as u32, case.len as u64, case.len as u64)
                );
                assert!(into[tag] == want[tag], "{case:?}");
                ended[tag][1] = true;
            }
        }
        let over = |(case, ended): (&Case, &[bool; 2])| ended[0] && (ended[1] || case.reception == Reception::NotReady);
        if cases.iter().zip(&ended).all(over) {
            break;
        }
        if turn > 100_000 {
            let counters = [0, 1].map(|at| *pair.engines[at].counters());
            panic!("no progress: {ended:?} {counters:#?}");
        }
    }
    let steps = pair.topology.steps();
    pair.assert_clean("after the exchange");
    assert!(into == want || cases.iter().any(|case| case.reception == Reception::NotReady), "written after the end");
    let of = |count: fn(&Counters) -> u64| pair.engines.iter().map(|engine| count(engine.counters())).sum::<u64>();
    assert_eq!(
        (of(|c| c.lost), of(|c| c.credit_violations), of(|c| c.malformed), of(|c| c.unknown_tags)),
        (0, 0, 0, 0)
    );
    let links = || pair.engines.iter().flat_map(|engine| &engine.rails().0);
    Counts {
        steps,
        moved: of(|c| c.frames_migrated),
        duplicates: of(|c| c.duplicates),
        returns: of(|c| c.links_up),
        handed_over: links().map(G::handed_over).sum(),
    }
}

/// With two and with three links, each link fails at every step of every exchange: with all kinds of failures if the build is
/// fast, otherwise with one of them in turn.
fn fail_everywhere(names: &[&str], shuffle: bool) -> Counts {
    let mut all = Counts::default();
    for (name, config, cases) in exchanges().into_iter().filter(|(name, ..)| names.contains(name)) {
        for count in [2, 3] {
            let steps = exchange::<Cables>(config, &cases, count, None, shuffle.then_some(1)).steps;
            for step in 1..=steps {
                for cable in 0..count {
                    let turn = (step as usize * 3 + cable * 5) % FAULTS.len();
                    for (_, fault) in FAULTS.iter().enumerate().filter(|(at, _)| !cfg!(debug_assertions) || *at == turn)
                    {
                        let seed = shuffle.then_some(step);
                        let run = || exchange::<Cables>(config, &cases, count, Some((step, cable, *fault)), seed);
                        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
                            Ok(seen) => all.add(&seen),
                            Err(_) => panic!("{name}, {count} links: step {step} of {steps}, cable {cable}, {fault:?}"),
                        }
                    }
                }
            }
        }
    }
    assert!(all.moved > 100 && all.duplicates > 0 && all.returns > 100, "nothing was put to the test");
    all
}

#[test]
fn p14_b37_a_link_goes_down_at_every_step_of_short_messages() {
    fail_everywhere(&["eager", "unexpected"], false);
}

#[test]
fn p14_b37_a_link_goes_down_at_every_step_of_long_messages() {
    let seen = fail_everywhere(&["rendezvous", "late rendezvous", "stream"], false);
    assert!(seen.handed_over > 10);
}

#[test]
fn p14_p21_a_link_goes_down_at_every_step_of_acknowledged_messages() {
    fail_everywhere(&["synchronous", "ready"], false);
}

#[test]
fn p14_p27_a_link_goes_down_at_every_step_of_messages_that_are_held_back() {
    fail_everywhere(&["credit", "held", "probed", "probed with credit"], false);
}

#[test]
fn p14_b37_a_link_goes_down_while_frames_overtake_each_other() {
    fail_everywhere(&["eager", "late rendezvous", "credit", "held", "probed"], true);
}

const BODY: usize = 2_000;

/// A pair with a half-sent long message from engine 0: both buffers, the send and the receive.
fn half_way(count: usize) -> (Pair<Cables>, Vec<u8>, Vec<u8>, Request, Request) {
    let mut pair = Pair::<Cables>::new(WIDE, count, None);
    let (data, mut into) = (bytes(BODY, 3), vec![0; BODY]);
    let receive = pair.recv(1, 0, 1, &mut into);
    let Sending::Pending(send) = pair.send(0, 1, Mode::Standard, &data) else { panic!("longer than a frame") };
    while pair.engines[0].counters().fragments_sent < 6 {
        pair.turn();
    }
    (pair, data, into, send, receive)
}

#[test]
fn p14_m6_with_the_last_link_the_peer_is_lost_and_may_rejoin() {
    for count in [1, 2, 3] {
        for (refuses_sends, tells) in [(false, true), (true, true), (false, false)] {
            let (mut pair, _data, mut into, send, receive) = half_way(count);
            let held = pair.send(0, 2, Mode::Synchronous, &[1; 10]);
            let (mut any, mut other) = ([0; 10], [0; 4]);
            let wild = pair.recv(0, ANY, 9, &mut any);
            let specific = pair.recv(0, 1, 8, &mut other);
            let polls_until_down = if tells { [0, 9] } else { [0, 0] };
            for cable in 0..count {
                let polls_until_down = polls_until_down.map(|polls| polls + 5 * cable as u32);
                pair.fail_link(cable, LinkFailure { refuses_sends, polls_until_down, ..LinkFailure::CLEAN });
            }
            let failed = Err(Failure::PeerFailed(Peer(1)));
            assert_eq!(pair.finish(0, send), failed);
            let Sending::Pending(held) = held else { panic!("waits for its match") };
            assert_eq!(pair.finish(0, held), failed);
            assert_eq!(pair.finish(1, receive), Err(Failure::PeerFailed(Peer(0))));
            into.fill(0xcc);
            pair.turns(200);
            assert!(into.iter().all(|byte| *byte == 0xcc), "written after the end");
            // A receive that names its source ends. One from any source may still be satisfied by others.
            assert_eq!(pair.engines[0].test(specific), Some(failed));
            assert_eq!(pair.engines[0].test(wild), None);
            assert_eq!([0, 1].map(|at| pair.engines[at].counters().lost), [1, 1]);
            // The other side starts again.
            (0..count).for_each(|cable| pair.topology.net.borrow_mut().restore(cable));
            pair.introduce();
            assert_eq!(pair.send(1, 9, Mode::Standard, &[7; 10]), Sending::Complete);
            assert_eq!(pair.finish(0, wild).map(|status| status.delivered), Ok(10));
            assert_eq!(any, [7; 10]);
            pair.assert_clean("after the return");
        }
    }
}

#[test]
fn p14_a_restored_link_carries_its_share_and_no_more() {
    const LONG: usize = 60_000;
    let mut pair = Pair::<Cables>::new(WIDE, 2, None);
    let (data, mut into) = (bytes(LONG, 9), vec![0; LONG]);
    let receive = pair.recv(1, 0, 1, &mut into);
    let Sending::Pending(send) = pair.send(0, 1, Mode::Standard, &data) else { panic!("longer than a frame") };
    let sent = |pair: &Pair<Cables>| [0, 1].map(|link| pair.engines[0].rails().0[link].sent());
    pair.turns(20);
    pair.fail_link(0, LinkFailure::CLEAN);
    pair.turns(3);
    let before = sent(&pair);
    while pair.engines[0].counters().fragments_sent < 250 {
        pair.turn();
    }
    let alone = sent(&pair);
    assert!(alone[0] == before[0] && alone[1] > before[1] + 100);
    pair.topology.net.borrow_mut().restore(0);
    assert_eq!(pair.finish(1, receive).map(|status| status.delivered), Ok(LONG as u64));
    assert!(pair.finish(0, send).is_ok());
    assert!(into == data);
    let last = sent(&pair);
    let carried = [0, 1].map(|link| last[link] - alone[link]);
    assert!(carried[0].abs_diff(carried[1]) < 20 && carried[0] > 50, "{carried:?}");
    assert_eq!((pair.engines[0].counters().links_down, pair.engines[0].counters().links_up), (1, 1));
    pair.assert_clean("in the end");
}

#[test]
fn p14_frames_are_no_longer_than_the_least_rail_takes() {
    let (mut pair, data, into, send, receive) = half_way(3);
    let short: Vec<_> = (0..9).map(|tag| bytes(66 + tag, 0)).collect();
    let sends: Vec<_> = (0..9).map(|tag| pair.send(0, 2 + tag as u32, Mode::Standard, &short[tag])).collect();
    assert!(pair.finish(1, receive).is_ok() && pair.finish(0, send).is_ok() && into == data);
    for (tag, sending) in sends.into_iter().enumerate() {
        let mut into = vec![0; short[tag].len()];
        let receive = pair.recv(1, 0, 2 + tag as u32, &mut into);
        assert!(pair.finish(1, receive).is_ok() && into == short[tag]);
        if let Sending::Pending(request) = sending {
            assert!(pair.finish(0, request).is_ok());
        }
    }
    for link in &pair.engines[0].rails().0 {
        let [_, eager, bulk] = link.longest;
        assert!((eager, bulk) <= (90, 160) && bulk <= 160, "{eager} {bulk}");
    }
    // And they are no shorter than that.
    assert!(pair.engines[0].rails().0.iter().any(|link| link.longest[1] == 90));
    assert!(pair.engines[0].rails().0.iter().any(|link| link.longest[2] == 160));
}

/// One link reads bodies in place, the other copies them: the end of a body in place is reported when the other link has copied
/// it.
#[test]
fn p14_p17_a_body_sent_in_place_that_is_copied_when_it_migrates_ends() {
    let mut pair = Pair::<Cables>::new(WIDE, 2, None);
    pair.engines[0].rails_mut().0[1].copied = 1_000;
    let (mut data, mut into) = (bytes(BODY, 3), vec![0; BODY]);
    let want = data.clone();
    let receive = pair.recv(1, 0, 1, &mut into);
    let Sending::Pending(send) = pair.send(0, 1, Mode::Standard, &data) else { panic!("longer than a frame") };
    while pair.engines[0].counters().fragments_sent < 6 {
        pair.turn();
    }
    pair.fail_link(0, LinkFailure::CLEAN);
    assert!(pair.finish(0, send).is_ok());
    data.fill(0xdd);
    assert!(pair.finish(1, receive).is_ok() && into == want);
    assert!(pair.engines[0].counters().frames_migrated > 0);
    pair.assert_clean("in the end");
}

/// A whole message has arrived, and no acknowledgement has come back. Until one does, rails may read the sender's memory, and the
/// send does not end.
#[test]
fn p21_p14_a_send_whose_acknowledgement_is_lost_does_not_end_before_another_comes() {
    for (mode, len) in [(Mode::Standard, BODY), (Mode::Synchronous, 10), (Mode::Synchronous, BODY)] {
        let mut pair = Pair::<Cables>::new(WIDE, 2, None);
        let (mut data, mut into) = (bytes(len, 3), vec![0; len]);
        let want = data.clone();
        let Sending::Pending(send) = pair.send(0, 1, mode, &data) else { panic!("is acknowledged") };
        pair.turns(10);
        let receive = pair.recv(1, 0, 1, &mut into);
        // No frame from the receiver arrives any more, by either link, and neither side has noticed yet.
        let polls_until_down = [[200, 400], [10_000, 10_000]];
        for (cable, polls_until_down) in polls_until_down.into_iter().enumerate() {
            pair.fail_link(
                cable,
                LinkFailure {
                    directions: [true, false],
                    loses_in_flight: true,
                    refuses_sends: false,
                    polls_until_down,
                },
            );
        }
        pair.turns(150);
        assert_eq!(pair.engines[0].test(send), None, "{mode:?} {len}");
        assert!(data == want);
        pair.topology.net.borrow_mut().restore(1);
        assert!(pair.finish(0, send).is_ok());
        data.fill(0xdd);
        assert_eq!(pair.finish(1, receive).map(|status| status.delivered), Ok(len as u64));
        assert!(into == want);
        pair.turns(500);
        pair.assert_clean("in the end");
    }
}

#[test]
fn p14_a_frame_that_arrived_unacknowledged_migrates_and_is_taken_once() {
    let (mut pair, mut data, into, send, receive) = half_way(2);
    let want = data.clone();
    let polls_until_down = [40, 500];
    pair.fail_link(
        0,
        LinkFailure { directions: [true, false], loses_in_flight: false, refuses_sends: false, polls_until_down },
    );
    pair.turns(30);
    assert_eq!(pair.engines[0].test(send), None);
    assert!(pair.finish(0, send).is_ok());
    data.fill(0xdd);
    assert!(pair.finish(1, receive).is_ok() && into == want);
    assert!(pair.engines[1].counters().duplicates > 0);
    pair.assert_clean("in the end");
}

/// A peer may send migrated frames that name any link and any number. That harms only the peer itself.
#[test]
fn p14_migrated_frames_that_no_link_knows_are_dropped() {
    use crate::rail::{Endpoint, Lane, Origin, Shape};
    let mut pair = Pair::<Cables>::new(WIDE, 2, None);
    let mut forge = |link: u8, tag: u8, len: u32| {
        let shape = Shape { tag, lane: Lane::Bulk, header: 12, len };
        let (header, body) = ([0x17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], vec![0; len as usize - 12]);
        let rail = &mut pair.engines[0].rails_mut().0[1];
        let origin = Origin { link, number: 77 };
        // SAFETY: the body is so short that it is copied.
        unsafe { rail.send_migrated(Endpoint(0), origin, shape, &header, Span::of(&body), None) }.unwrap();
        pair.turns(10);
        let counters = pair.engines[1].counters();
        (counters.stale, counters.unknown_tags, counters.duplicates, counters.malformed)
    };
    assert_eq!(forge(99, crate::ptl::TAG, 80), (1, 0, 0, 0));
    assert_eq!(forge(0, 0x80, 80), (1, 1, 0, 0));
    assert_eq!(forge(0, crate::ptl::TAG, 80), (1, 1, 1, 0)); // that number has arrived by now
    assert_eq!(forge(1, crate::ptl::TAG, 80), (1, 1, 1, 1)); // a control frame has no body
    pair.assert_clean("in the end");
}

#[test]
fn p9_a_disabled_rail_accepts_no_frames_and_delivers_those_it_has() {
    let (mut pair, data, into, send, receive) = half_way(2);
    let sent = |pair: &Pair<Cables>, at: usize| [0, 1].map(|link| pair.engines[at].rails().0[link].sent());
    pair.engines[0].enable_rail(0, false).unwrap();
    assert_eq!([0, 1, 2].map(|index| pair.engines[0].is_enabled(index)), [false, true, false]);
    let before = [sent(&pair, 0), sent(&pair, 1)];
    assert!(pair.engines[0].rails().0[0].unfinished() > 0); // in flight: it ends
    assert!(pair.finish(1, receive).is_ok() && pair.finish(0, send).is_ok() && into == data);
    let after = [sent(&pair, 0), sent(&pair, 1)];
    assert_eq!(after[0][0], before[0][0]);
    assert!(after[0][1] > before[0][1]);
    // Frames that arrive by the disabled link are taken.
    for tag in 0..6 {
        let (data, mut into) = ([tag as u8; 40], [0; 40]);
        let receive = pair.recv(0, 1, tag, &mut into);
        assert_eq!(pair.send(1, tag, Mode::Standard, &data), Sending::Complete);
        assert!(pair.finish(0, receive).is_ok() && into == data);
    }
    assert!(sent(&pair, 1)[0] > after[1][0]);
    assert_eq!(sent(&pair, 0)[0], before[0][0]);
    pair.engines[0].enable_rail(0, true).unwrap();
    for tag in 0..4 {
        let mut into = [0; 40];
        let receive = pair.recv(1, 0, tag, &mut into);
        assert_eq!(pair.send(0, tag, Mode::Standard, &[tag as u8; 40]), Sending::Complete);
        assert!(pair.finish(1, receive).is_ok() && into == [tag as u8; 40]);
    }
    assert!(sent(&pair, 0)[0] > before[0][0]);
    assert_eq!(pair.engines[0].enable_rail(2, true), Err(EnableError::NoRail(2)));
    assert_eq!(pair.engines[0].enable_rail(usize::MAX, false), Err(EnableError::NoRail(usize::MAX)));
    pair.assert_clean("in the end");
}

#[test]
fn p9_with_the_last_rail_disabled_messages_wait_and_the_caller_may_sleep() {
    for count in [1, 2] {
        let (mut pair, data, into, send, receive) = half_way(count);
        let enable =
            |pair: &mut Pair<Cables>, on| (0..count).for_each(|index| pair.engines[0].enable_rail(index, on).unwrap());
        enable(&mut pair, false);
        // Short messages wait as well, and so do the answers to an arriving message.
        let (mut short, mut long) = ([0; 10], [0; 300]);
        let waiting = pair.send(0, 2, Mode::Standard, &[5; 10]);
        assert!(matches!(waiting, Sending::Pending(_)));
        let empty = pair.send(0, 3, Mode::Standard, &[]);
        assert!(matches!(empty, Sending::Pending(_)));
        let from_peer = bytes(300, 4);
        let Sending::Pending(other) = pair.send(1, 4, Mode::Standard, &from_peer) else { panic!("is acknowledged") };
        let back = pair.recv(0, 1, 4, &mut long);
        let arrives = pair.recv(1, 0, 2, &mut short);
        pair.turns(200);
        let sent: u32 = pair.engines[0].rails().0.iter().map(Link::sent).sum();
        pair.turns(200);
        assert_eq!(pair.engines[0].rails().0.iter().map(Link::sent).sum::<u32>(), sent);
        assert!(
            [(0, send), (1, receive), (0, back), (1, arrives)].map(|(at, request)| pair.engines[at].test(request))
                == [None; 4]
        );
        assert!(pair.engines[0].arm()); // nothing to be done until then
        assert!(!pair.engines[0].is_drained());
        enable(&mut pair, true);
        assert!(!pair.engines[0].arm());
        for (at, request) in [(0, send), (1, receive), (0, back), (1, arrives), (1, other)] {
            assert!(pair.finish(at, request).is_ok());
        }
        assert!(into == data && short == [5; 10] && long[..] == from_peer);
        let Sending::Pending(waiting) = waiting else { return };
        let Sending::Pending(empty) = empty else { return };
        let empty_too = pair.recv(1, 0, 3, &mut []);
        for (at, request) in [(0, waiting), (0, empty), (1, empty_too)] {
            assert!(pair.finish(at, request).is_ok());
        }
        pair.assert_clean("in the end");
        assert!(pair.engines[0].is_drained());
    }
}

/// Of two links one is disabled and the other goes down: that is no reason to give the peer up, since it is alive.
#[test]
fn p9_p14_with_one_rail_disabled_and_the_other_down_messages_wait() {
    for enables in [true, false] {
        let (mut pair, data, into, send, receive) = half_way(2);
        pair.engines[0].enable_rail(1, false).unwrap();
        pair.turns(5);
        pair.fail_link(0, LinkFailure::CLEAN);
        pair.turns(100);
        assert_eq!([0, 1].map(|at| pair.engines[at].counters().lost), [0, 0]);
        assert_eq!((pair.engines[0].test(send), pair.engines[1].test(receive)), (None, None));
        if enables {
            pair.engines[0].enable_rail(1, true).unwrap();
        } else {
            pair.topology.net.borrow_mut().restore(0);
        }
        assert!(pair.finish(0, send).is_ok() && pair.finish(1, receive).is_ok() && into == data);
        pair.engines[0].enable_rail(1, true).unwrap();
        pair.assert_clean("in the end");
        // Frames to a peer that is added now do not take the disabled link either.
        pair.topology.net.borrow_mut().restore(0);
        pair.turns(10);
        (0..2).for_each(|at| pair.engines[at].del_peer(Peer(1 - at as u32)));
        pair.turns(10);
        pair.engines[0].enable_rail(0, false).unwrap();
        pair.introduce();
        let sent = pair.engines[0].rails().0[0].sent();
        for tag in 0..4 {
            let mut into = [0; 4];
            let receive = pair.recv(1, 0, tag, &mut into);
            assert_eq!(pair.send(0, tag, Mode::Standard, &[1; 4]), Sending::Complete);
            assert!(pair.finish(1, receive).is_ok());
        }
        assert_eq!(pair.engines[0].rails().0[0].sent(), sent);
    }
}
