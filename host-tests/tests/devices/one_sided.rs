//! Puts, gets and atomics between devices, by seed: over a network that loses, repeats, delays and changes datagrams, while a host
//! or a device dies, or memory is deregistered.
//!
//! What has to hold: nothing hangs; each command completes once; each atomic is done once; a put or get moves exactly its bytes; an
//! operation fails only if its peer died or has deregistered the memory; memory does not change after its deregistration has
//! completed; a session leaves nothing in its device.

use std::collections::BTreeMap;

use offload::{InUse, Limits};
use towline_core::pml::Config;
use towline_core::rail::access::Access;
use towline_core::rail::atomics::{Atomic, AtomicFlags, AtomicOp};
use towline_core::rma;
use towline_host_tests::random::Random;
use towline_window::atomics::Ordering;
use towline_window::command::{ANY, Body, Command, KEY, KeyPlace, Remote};
use towline_window::completion::{Done, Failure};
use towline_window::header::at;
use towline_window::host::Host;
use towline_window::ring::Pushed;

use crate::network::{self, Network};
use crate::node::{DeviceRails, Dpu, Window, attach};

const SEEDS: u64 = 400;
const NODES: usize = 3;
const ONE_SIDED: rma::Config = rma::Config { regions: 1, operations: 6, window: 3 };
/// Most operations of a host in progress.
const MOST: usize = 5;
/// Operations of a host.
const EACH: u32 = 40;
/// The longest put or get.
const LONGEST: u64 = 8000;
/// Bytes of the place of an operation, and of the part of shared memory that one host writes.
const PLACE: u64 = 8192;
/// Where things are in the buffers: the keys of all nodes, places of operations, shared memory.
const KEYS: u64 = 4096;
const PLACES: u64 = 8192;
const SHARED: u64 = PLACES + MOST as u64 * PLACE;
/// The counter is the first word of shared memory. The parts of hosts begin here.
const PARTS: u64 = 64;
const SHARED_BYTES: u64 = PARTS + NODES as u64 * PLACE;
const SECOND: u64 = 1_000_000_000;
const ROUNDS: u32 = 3_000_000;

/// What happens in a job beside the operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Nothing,
    HostDies,
    DeviceDies,
    Deregisters,
}

/// The node to which that happens.
const VICTIM: usize = 0;

#[derive(Debug)]
enum Kind {
    Put(Vec<u8>),
    Get,
    Add,
}

/// An operation in progress.
#[derive(Debug)]
struct Op {
    target: usize,
    kind: Kind,
    offset: u64,
    bytes: u64,
    place: u64,
}

struct Node {
    // The ends are dropped before the window.
    host: Host<'static>,
    device: Option<Dpu<DeviceRails>>,
    window: Window,
    ops: BTreeMap<u64, Op>,
    places: Vec<u64>,
    cookies: u64,
    left: u32,
    registration: u32,
    /// Whether its memory is gone, for new operations.
    is_gone: bool,
    /// The cookie of the deregistration, until it has completed.
    closing: Option<u64>,
    /// Shared memory when the deregistration completed.
    closed: Option<Vec<u8>>,
}

struct Job {
    event: Event,
    now: u64,
    random: Random,
    network: Network,
    nodes: Vec<Node>,
    /// By initiator and target: what the initiator's part of the target's memory has, unless an operation failed.
    parts: BTreeMap<(usize, usize), Option<Vec<u8>>>,
    /// By target: old values of the counter, and additions whose outcome is not known.
    counted: [Vec<u64>; NODES],
    unknown: [u64; NODES],
    failed: u64,
    denied: u64,
    /// How often every node had a turn, and the turn in which the deregistration began.
    turns: u32,
    closing_since: u32,
    /// Deregistrations that waited for the end of a put.
    waited: u64,
}

fn body(at: u64, bytes: u64) -> Body {
    Body { region: 0, at: Window::buffers() + at, bytes }
}

fn key_of(node: usize) -> KeyPlace {
    KeyPlace { region: 0, at: Window::buffers() + KEYS + (node * KEY) as u64 }
}

impl Node {
    fn read(&self, at: u64, bytes: u64) -> Vec<u8> {
        let mut into = vec![0; bytes as usize];
        self.window.memory().read(body(at, bytes).at, &mut into).expect("inside the window");
        into
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.window.memory().write(body(at, 0).at, bytes).expect("inside the window");
    }

    fn begin(&mut self, command: &Command) -> u64 {
        self.cookies += 1;
        assert_eq!(self.host.command(self.cookies, command), Ok(Pushed::Done));
        self.cookies
    }

    fn host_is_alive(&self, event: Event, me: usize) -> bool {
        !(me == VICTIM && self.is_gone && event != Event::Deregisters)
    }
}

impl Job {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let event = [Event::Nothing, Event::HostDies, Event::DeviceDies, Event::Deregisters][seed as usize % 4];
        let faults = network::Faults {
            lose: random.pick(&[0, 20, 100]),
            repeat: random.pick(&[0, 20, 100]),
            corrupt: random.pick(&[0, 20, 50]),
            jitter: random.pick(&[0, 1000, 20_000]),
        };
        let longest = random.pick(&[300, 600, 1472]);
        let network = Network::new(NODES, longest, faults, random.fork());
        let engine = Config { peers: NODES as u32, rma: ONE_SIDED, ..Config::SMALLEST };
        let limits = Limits { engine, communicators: 1, messages: 1 };
        let node = |me: usize| {
            let window = Window::new();
            let mut device = Dpu::plugged(&window, &limits, 1, network.plug(me));
            let host = attach(&window, &mut device, 100 + me as u32, 0);
            Node {
                host,
                device: Some(device),
                window,
                ops: BTreeMap::new(),
                places: (0..MOST as u64).map(|place| PLACES + place * PLACE).collect(),
                cookies: 0,
                left: EACH,
                registration: 0,
                is_gone: false,
                closing: None,
                closed: None,
            }
        };
        let nodes = (0..NODES).map(node).collect();
        let pairs = (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to)));
        let parts = pairs.map(|pair| (pair, Some(vec![0; PLACE as usize]))).collect();
        let (counted, unknown) = (Default::default(), [0; NODES]);
        let mut job = Self {
            event,
            now: 1,
            random,
            network,
            nodes,
            parts,
            counted,
            unknown,
            failed: 0,
            denied: 0,
            turns: 0,
            closing_since: 0,
            waited: 0,
        };
        job.introduce();
        job
    }

    /// Executes a command that completes at once.
    fn call(&mut self, me: usize, command: &Command) -> Done {
        let node = &mut self.nodes[me];
        let cookie = node.begin(command);
        node.device.as_mut().expect("it runs").poll(self.now);
        let completion = node.host.take().expect("the device follows the protocol").expect("it completes at once");
        assert_eq!(completion.cookie, cookie);
        completion.result.expect("the command is right")
    }

    fn introduce(&mut self) {
        let cards: Vec<_> = (0..NODES)
            .map(|me| {
                let length = self.call(me, &Command::Publish { into: body(0, 1024) }).value;
                self.nodes[me].read(0, length.into())
            })
            .collect();
        for me in 0..NODES {
            for (peer, card) in (0..).zip(&cards) {
                self.nodes[me].write(0, card);
                self.call(me, &Command::AddPeer { peer, card: body(0, card.len() as u64) });
            }
            let access = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
            let memory = body(SHARED, SHARED_BYTES);
            let register = Command::Register { access, only: ANY, memory, key: key_of(me) };
            self.nodes[me].registration = self.call(me, &register).value;
        }
        for from in 0..NODES {
            let at = KEYS + (from * KEY) as u64;
            let key = self.nodes[from].read(at, KEY as u64);
            self.nodes.iter().for_each(|node| node.write(at, &key));
        }
    }

    /// Begins an operation of a host.
    fn begin(&mut self, me: usize) {
        let random = &mut self.random;
        let target = random.below(NODES as u64) as usize;
        let is_busy = |op: &Op| op.target == target && !matches!(op.kind, Kind::Add);
        let node = &mut self.nodes[me];
        let (mut which, length) = (random.below(3), random.length(LONGEST));
        if node.ops.values().any(is_busy) || self.parts[&(me, target)].is_none() {
            which = 2; // the bytes of its part are not known now
        }
        let Some(place) = node.places.pop() else { return };
        let offset = PARTS + me as u64 * PLACE + random.below(PLACE - length + 1);
        let mut remote = Remote { peer: target as u32, offset, key: key_of(target) };
        let local = body(place, length);
        let (kind, command) = match which {
            0 => {
                let bytes: Vec<u8> = (0..length).map(|_| random.word() as u8).collect();
                node.write(place, &bytes);
                (Kind::Put(bytes), Command::Put { to: remote, body: local })
            }
            1 => {
                node.write(place, &vec![0x5a; PLACE as usize]);
                (Kind::Get, Command::Get { from: remote, body: local })
            }
            _ => {
                remote.offset = 0;
                let atomic = Atomic::Op(AtomicOp::Add, 1);
                (Kind::Add, Command::Atomic { at: remote, atomic, flags: AtomicFlags::empty() })
            }
        };
        node.left -= 1;
        let cookie = node.begin(&command);
        node.ops.insert(cookie, Op { target, kind, offset: offset - PARTS - me as u64 * PLACE, bytes: length, place });
    }

    /// Takes a completion of a host. Returns whether there was one.
    fn take(&mut self, me: usize) -> bool {
        let node = &mut self.nodes[me];
        let Some(completion) = node.host.take().expect("the device follows the protocol") else { return false };
        if node.closing == Some(completion.cookie) {
            assert_eq!(completion.result, Ok(Done::default()));
            node.closing = None;
            self.waited += u64::from(self.turns > self.closing_since + 1);
            node.closed = Some(node.read(SHARED, SHARED_BYTES));
            return true;
        }
        let op = node.ops.remove(&completion.cookie).expect("each command completes once");
        node.places.push(op.place);
        let target_is_gone = self.nodes[op.target].is_gone;
        match completion.result {
            Ok(done) => self.succeed(me, op, done.word),
            Err(why) => {
                assert!(target_is_gone, "node {me}: {op:?} failed: {why}");
                // A device that died does not answer, and the network may lose what the device of a dead host says.
                let expected: &[Failure] = match self.event {
                    Event::Deregisters => &[Failure::StaleKey],
                    _ => &[Failure::PeerFailed, Failure::Unreachable],
                };
                assert!(expected.contains(&why), "node {me}: {op:?}: {why}");
                assert_eq!(completion.failed, op.target as u32);
                let is_denied = why == Failure::StaleKey;
                self.failed += u64::from(!is_denied);
                self.denied += u64::from(is_denied);
                self.forget(me, &op, !is_denied);
            }
        }
        true
    }

    /// It is not known whether an operation was done. `at_all`: whether an atomic may have been done.
    fn forget(&mut self, me: usize, op: &Op, at_all: bool) {
        match op.kind {
            Kind::Add => self.unknown[op.target] += u64::from(at_all),
            Kind::Put(_) => _ = self.parts.insert((me, op.target), None),
            Kind::Get => {}
        }
    }

    fn succeed(&mut self, me: usize, op: Op, word: u64) {
        let range = op.offset as usize..(op.offset + op.bytes) as usize;
        let part = self.parts.get_mut(&(me, op.target)).expect("each pair has a part").as_mut();
        match op.kind {
            Kind::Add => self.counted[op.target].push(word),
            Kind::Put(bytes) => part.expect("puts need a known part")[range].copy_from_slice(&bytes),
            Kind::Get => {
                let mut expected = part.expect("gets need a known part")[range].to_vec();
                expected.resize(PLACE as usize, 0x5a);
                assert!(
                    self.nodes[me].read(op.place, PLACE) == expected,
                    "node {me} got other bytes from {}",
                    op.target
                );
            }
        }
    }

    fn strike(&mut self) {
        let node = &mut self.nodes[VICTIM];
        node.is_gone = true;
        match self.event {
            Event::Nothing => node.is_gone = false,
            Event::Deregisters => {
                let registration = node.registration;
                node.closing = Some(node.begin(&Command::Deregister { registration }));
                self.closing_since = self.turns;
            }
            Event::HostDies | Event::DeviceDies => {
                if self.event == Event::DeviceDies {
                    node.device = None;
                    self.network.unplug(VICTIM, false);
                } else {
                    let wanted = node.window.memory().word(at::WANTED).expect("the window has a header");
                    wanted.store(0, Ordering::Release);
                }
                // Nobody knows what has become of its operations.
                for (_, op) in std::mem::take(&mut node.ops) {
                    self.forget(VICTIM, &op, true);
                }
                self.nodes[VICTIM].left = 0;
            }
        }
    }

    fn run(&mut self) {
        let strikes_at = self.random.below(2000);
        let (mut steps, mut growth) = (0, 1000);
        for _ in 0..ROUNDS {
            let mut active = false;
            self.turns += 1;
            for me in 0..NODES {
                if steps == strikes_at {
                    self.strike();
                }
                steps += 1;
                if self.nodes[me].host_is_alive(self.event, me) {
                    while self.take(me) {
                        active = true;
                    }
                    let node = &self.nodes[me];
                    if node.left > 0 && node.ops.len() < MOST && self.random.chance(300) {
                        self.begin(me);
                        active = true;
                    }
                }
                if let Some(device) = &mut self.nodes[me].device {
                    active |= device.poll(self.now) != 0;
                }
            }
            let is_idle = |node: &Node| node.left == 0 && node.ops.is_empty() && node.closing.is_none();
            if steps > strikes_at && self.nodes.iter().all(is_idle) {
                return;
            }
            assert!(
                self.now < 400 * SECOND,
                "it hangs: {:?}",
                self.nodes.iter().map(|node| &node.ops).collect::<Vec<_>>()
            );
            growth = if active { 500 } else { (growth * 8).min(60_000_000) };
            let next = self.network.next_at().unwrap_or(u64::MAX).max(self.now + 1);
            self.now = (self.now + growth).min(next);
            self.network.advance(self.now);
        }
        panic!("it never ends");
    }

    fn check(&mut self) {
        for target in 0..NODES {
            let node = &self.nodes[target];
            let shared = node.read(SHARED, SHARED_BYTES);
            if let Some(closed) = &node.closed {
                assert!(shared == *closed, "memory changed after its deregistration");
            }
            let counter = u64::from_le_bytes(*shared.first_chunk().expect("it is long enough"));
            let counted = &mut self.counted[target];
            counted.sort_unstable();
            let done = counted.len() as u64;
            counted.dedup();
            assert_eq!(counted.len() as u64, done, "an old value was returned twice");
            assert!(counted.last().is_none_or(|last| *last < counter));
            assert!((done..=done + self.unknown[target]).contains(&counter), "{done} additions, and {counter} counted");
            for from in 0..NODES {
                if let Some(part) = &self.parts[&(from, target)] {
                    let at = (PARTS + from as u64 * PLACE) as usize;
                    assert!(shared[at..at + PLACE as usize] == **part, "the part of {from} at {target}");
                }
            }
        }
        for node in &mut self.nodes {
            let Some(device) = &mut node.device else { continue };
            node.window.memory().word(at::WANTED).expect("the window has a header").store(0, Ordering::Release);
            device.poll(self.now);
            assert_eq!(device.server.in_use(), InUse::default());
        }
    }
}

#[test]
fn one_sided_operations_are_exact_or_fail_with_their_peer() {
    let (mut failed, mut denied, mut lost, mut waited) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let mut job = Job::new(seed);
        job.run();
        job.check();
        (failed, denied, lost) = (failed + job.failed, denied + job.denied, lost + job.network.counts().lost);
        waited += job.waited;
    }
    println!(
        "{failed} operations failed with their peer, {denied} were denied, {waited} deregistrations waited, {lost} datagrams were lost"
    );
    assert!(failed > 0 && denied > 0 && lost > 0 && waited > 0, "not everything happened");
}
