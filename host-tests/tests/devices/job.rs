//! Jobs whose nodes consist of a host and a device, in virtual time: hosts and devices die between any two steps and come back.
//!
//! A job has phases. In each phase the hosts exchange random messages over a new communicator. Between phases all hosts and devices
//! that died have come back. What has to hold: nothing hangs; each command completes once; messages of nodes that live arrive,
//! whole and in order; a message of a node that died arrives whole and in order, or its operations fail with the name of that node;
//! a device whose host died keeps nothing of it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

use offload::{InUse, Limits};
use towline_core::pml::Config;
use towline_host_tests::random::Random;
use towline_window::atomics::Ordering;
use towline_window::command::{ANY, Body, Command, Mode};
use towline_window::completion::{Completion, Done, Failure};
use towline_window::header::at;
use towline_window::host::{Attaching, Host};
use towline_window::ring::Pushed;

use crate::network::{self, Network};
use crate::node::{DeviceRails, Dpu, Window};

const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1000 * MILLI;

/// Most operations of a host in progress. The devices have room for more.
const WINDOW: usize = 10;
/// Bytes of a message's place in the window.
const PLACE: u64 = 4096;
/// Where the places begin in the buffers.
const PLACES: u64 = 4096;
/// The longest message.
const LONGEST: u64 = 4000;
/// Messages that are at least as long begin with their number.
const NUMBERED: usize = 8;
/// Bytes behind the memory of a receive that must not change.
const GUARD: usize = 16;
const BLANK: u8 = 0xa5;
/// A host whose device shows no heartbeat for this time gives it up.
const SILENT: u64 = 5 * SECOND;
/// A phase that takes longer hangs. A link that was never connected is given up after a minute.
const HANGS: u64 = 400 * SECOND;
const ROUNDS: u32 = 5_000_000;
/// Steps after which all links of a network without losses are connected.
const CONNECTED: u64 = 1000;

/// A message of a phase.
#[derive(Clone, Copy, Debug)]
struct Message {
    from: usize,
    to: usize,
    tag: u32,
    bytes: usize,
    mode: Mode,
}

/// How the messages of one node to another are received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Style {
    /// By their tags.
    Tags,
    /// By source alone.
    AnyTag,
    /// A probe takes each out.
    Take,
    /// From any source, with any tag. Only where nobody dies: a node whose host died has ended, and others may still send.
    Any,
}

/// What dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    Host,
    Device,
    Both,
    /// Nothing dies: the host ends its session, as a program does at its end.
    Leaves,
}

/// A death.
#[derive(Clone, Copy, Debug)]
struct Kill {
    /// After this many steps of the phase.
    step: u64,
    node: usize,
    victim: Victim,
    /// Nanoseconds until the driver notices the death of a host.
    noticed: u64,
    /// Nanoseconds until a new host or a reset device begins.
    back: u64,
    /// What was on its way to a device that died is still there when it comes back.
    keeps_datagrams: bool,
}

/// What a host does next.
#[derive(Clone, Copy, Debug)]
enum Action {
    Publish,
    /// Adds a peer once its card is known.
    Meet(usize),
    Forget(usize),
    DropCommunicator,
    AddCommunicator,
    Send(usize),
    Receive(usize),
    Take(usize),
    /// Begins a receive from a rank, or from any, for which there is no message.
    Extra(u32),
    /// Cancels that.
    CancelExtra,
}

/// A command that completes at once, for which the host waits.
#[derive(Clone, Copy, Debug)]
enum Call {
    Publish,
    Meet(usize, u32),
    Forget(usize),
    DropCommunicator,
    AddCommunicator,
    Take(usize),
    CancelExtra,
}

/// The message of a receive for which there is none.
const EXTRA: usize = usize::MAX;
/// Its tag.
const EXTRA_TAG: u32 = 77;

/// A send or receive in progress.
#[derive(Clone, Copy, Debug)]
struct Op {
    message: usize,
    is_send: bool,
    place: u64,
    began: u64,
}

/// A process of a host with a session.
struct Process {
    host: Host<'static>,
    program: VecDeque<Action>,
    call: Option<(u64, Call)>,
    ops: BTreeMap<u64, Op>,
    /// Free places. The last one is used next, so late writes to it are found.
    places: Vec<u64>,
    cookies: u64,
    /// The node's, when the session began.
    incarnation: u32,
    communicator: Option<u32>,
    /// The incarnation in which each peer was added.
    known: Vec<Option<u32>>,
    /// The receive for which there is no message.
    extra: Option<u64>,
    /// It is from any source, and another member of the communicator has died. So it has to end by itself.
    extra_must_fail: bool,
    retry_at: u64,
    backoff: u64,
    heartbeat: (u32, u64),
}

enum HostState {
    /// There is none until then.
    Dead(u64),
    /// It asks for a session.
    Attaching(Option<Box<Attaching<'static>>>),
    Attached(Box<Process>),
}

struct Node {
    // The two ends are dropped before the window.
    host: HostState,
    device: Option<Dpu<DeviceRails>>,
    window: Window,
    /// When a device that is down begins again.
    starts_at: u64,
    /// When the driver takes back the session of a host that died, and which.
    notices: Vec<(u64, u32)>,
    session: u32,
    boots: u32,
    stalled_until: u64,
    /// Counts the cards: a new host or device has a new one.
    incarnation: u32,
    card: Option<(u32, Vec<u8>)>,
    /// It died or left in this phase.
    died: bool,
    /// Its incarnations whose host has left.
    left: Vec<u32>,
}

/// How often things happened.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    pub messages: u64,
    pub hosts_killed: u64,
    pub devices_killed: u64,
    pub failed: u64,
    /// Operations with a node whose device did not answer.
    pub unreachable: u64,
    pub finished: u64,
    pub unknown: u64,
    pub lost_datagrams: u64,
    pub sessions_ended: u64,
    pub stalls: u64,
    /// Deaths while the victim or a host was still being set up.
    pub early: u64,
    pub steps: u64,
    /// The longest time in nanoseconds from a death to the end of another node's operation.
    pub longest_notice: u64,
    /// Receives that were cancelled.
    pub cancelled: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.hosts_killed += other.hosts_killed;
        self.devices_killed += other.devices_killed;
        self.failed += other.failed;
        self.finished += other.finished;
        self.unreachable += other.unreachable;
        self.unknown += other.unknown;
        self.lost_datagrams += other.lost_datagrams;
        self.sessions_ended += other.sessions_ended;
        self.stalls += other.stalls;
        self.cancelled += other.cancelled;
        self.early += other.early;
        self.steps += other.steps;
        self.longest_notice = self.longest_notice.max(other.longest_notice);
    }
}

struct Job {
    family: Family,
    now: u64,
    random: Random,
    network: Network,
    nodes: Vec<Node>,
    limits: Limits,
    // Of the phase:
    phase: u32,
    messages: Vec<Message>,
    styles: BTreeMap<(usize, usize), Style>,
    /// The source of each node's receive for which there is no message.
    extras: Vec<Option<u32>>,
    sent: Vec<Option<Result<(), Failure>>>,
    /// Which message each receive has got: the receive of message m is the one that was planned for it.
    received: Vec<Option<Result<usize, Failure>>>,
    steps: u64,
    kills: Vec<Kill>,
    killed_at: u64,
    counts: Counts,
    trace: bool,
}

type Outcome = Result<(), String>;

/// What dies in the jobs of a family, and how bad the network is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Hosts and devices die between any two steps, and the network may be bad.
    All,
    /// Only hosts die, after all are connected, and drivers notice it at once. The network loses nothing.
    Hosts,
    /// Hosts end their sessions while others still exchange messages with them. The network loses nothing.
    Leaves,
}

/// Runs the job of a seed.
///
/// # Errors
/// What went wrong.
pub fn run(family: Family, seed: u64) -> Result<Counts, String> {
    let mut random = Random::new(seed);
    let nodes = random.between(2, 4) as usize;
    let faults = match random.below(3) {
        _ if family != Family::All => network::Faults::default(),
        0 => network::Faults::default(),
        1 => network::Faults { lose: random.pick(&[10, 50, 150]), ..network::Faults::default() },
        _ => network::Faults {
            lose: random.pick(&[0, 20, 100]),
            repeat: random.pick(&[0, 20, 100]),
            corrupt: random.pick(&[0, 20, 50]),
            jitter: random.pick(&[0, 1000, 20_000]),
        },
    };
    let longest = random.pick(&[300, 600, 1472]);
    let network = Network::new(nodes, longest, faults, random.fork());
    let engine = Config {
        peers: nodes as u32,
        requests: WINDOW as u32 + 6,
        unexpected: random.pick(&[1, 2, 8]) * nodes as u32,
        units: random.pick(&[0, 2, 8]) * nodes as u32,
        unit_bytes: random.pick(&[64, 200]),
        seed: random.word(),
        first_sequence: u64::MAX - random.below(20),
        ..Config::SMALLEST
    };
    let limits = Limits { engine, communicators: 2, messages: 3 };
    let node = |me: usize| {
        let window = Window::new();
        let device = Dpu::plugged(&window, &limits, 1, network.plug(me));
        Node {
            host: HostState::Attaching(None),
            device: Some(device),
            window,
            starts_at: 0,
            notices: vec![],
            session: me as u32 * 1000,
            boots: 1,
            stalled_until: 0,
            incarnation: 0,
            card: None,
            died: false,
            left: vec![],
        }
    };
    let nodes = (0..nodes).map(node).collect();
    let mut job = Job {
        family,
        now: 1,
        random,
        network,
        nodes,
        limits,
        phase: 0,
        messages: vec![],
        styles: BTreeMap::new(),
        extras: vec![],
        sent: vec![],
        received: vec![],
        steps: 0,
        kills: vec![],
        killed_at: 0,
        counts: Counts::default(),
        trace: std::env::var_os("TOWLINE_TRACE").is_some(),
    };
    let phases = job.random.between(2, 4) as u32;
    for phase in 0..phases {
        job.plan(phase, phase + 1 == phases);
        job.exchange().and_then(|()| job.check_phase()).map_err(|why| {
            let (steps, now) = (job.steps, job.now);
            format!("seed {seed}, phase {phase}, step {steps}, {now} ns: {why}\n{}", job.situation())
        })?;
    }
    job.end().map_err(|why| format!("seed {seed}, at the end: {why}"))?;
    job.counts.lost_datagrams = job.network.counts().lost;
    Ok(job.counts)
}

fn byte_of(phase: u32, message: usize, index: usize) -> u8 {
    if index < NUMBERED {
        return (((u64::from(phase) << 32) | message as u64) >> (8 * index)) as u8;
    }
    (index as u32).wrapping_mul(0x9e37_79b1).wrapping_add((message as u32).wrapping_mul(0x85eb_ca6b)).to_le_bytes()[3]
}

impl Job {
    fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>12} {}", self.now, what());
        }
    }

    /// Makes the messages and deaths of a phase. Nobody dies in the last one.
    fn plan(&mut self, phase: u32, is_last: bool) {
        self.say(|| format!("phase {phase} begins"));
        let nodes = self.nodes.len();
        (self.phase, self.steps) = (phase, 0);
        let random = &mut self.random;
        let mut styles = BTreeMap::new();
        for pair in (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))) {
            styles.insert(pair, random.pick(&[Style::Tags, Style::AnyTag, Style::Take]));
        }
        let kills = if is_last { 0 } else { random.below(3) };
        for to in 0..nodes {
            if kills == 0 && random.chance(300) {
                styles.extend((0..nodes).map(|from| ((from, to), Style::Any)));
            }
        }
        let count = random.between(1, 60) as usize;
        let message = |_| Message {
            from: random.below(nodes as u64) as usize,
            to: random.below(nodes as u64) as usize,
            tag: random.below(3) as u32,
            bytes: random.length(LONGEST) as usize,
            mode: random.pick(&[Mode::Standard, Mode::Synchronous, Mode::Complete]),
        };
        self.messages = (0..count).map(message).collect();
        self.styles = styles;
        self.sent = vec![None; count];
        self.received = vec![None; count];
        let family = self.family;
        let mut kills: Vec<Kill> = (0..kills).map(|_| kill(family, nodes, random)).collect();
        kills.sort_by_key(|kill| std::cmp::Reverse(kill.step));
        self.kills = kills;
        for node in &mut self.nodes {
            node.died = false;
        }
        let any_or = |random: &mut Random| random.pick(&[ANY, 0, 1]);
        self.extras = (0..nodes).map(|_| self.random.chance(300).then(|| any_or(&mut self.random))).collect();
        for me in 0..nodes {
            let program = self.program(me);
            if let HostState::Attached(process) = &mut self.nodes[me].host {
                process.program.extend(program);
            }
        }
    }

    /// What a host does in this phase.
    fn program(&self, me: usize) -> Vec<Action> {
        let mut program = vec![Action::Publish];
        program.extend((0..self.nodes.len()).map(Action::Meet));
        program.extend([Action::DropCommunicator, Action::AddCommunicator]);
        let extra = self.extras[me];
        program.extend(extra.map(Action::Extra));
        for (number, message) in self.messages.iter().enumerate() {
            let receive = match self.styles[&(message.from, message.to)] {
                Style::Take => Action::Take(number),
                _ => Action::Receive(number),
            };
            if message.to == me && message.from == me {
                // A receive that waits for the message before it is sent would wait for ever.
                program.extend([Action::Send(number), receive]);
            } else if message.to == me {
                program.push(receive);
            } else if message.from == me {
                program.push(Action::Send(number));
            }
        }
        program.extend(extra.map(|_| Action::CancelExtra));
        program
    }

    /// Runs all nodes until the work of the phase is done, and all nodes that died are back.
    fn exchange(&mut self) -> Outcome {
        let (begin, mut growth) = (self.now, 1000);
        let mut actors: Vec<usize> = (0..2 * self.nodes.len()).collect();
        for _ in 0..ROUNDS {
            let mut active = self.apply_due();
            self.random.shuffle(&mut actors);
            for actor in actors.iter().copied() {
                active |= self.apply_kills(false);
                self.steps += 1;
                let me = actor / 2;
                active |= if actor % 2 == 0 { self.step_host(me)? } else { self.step_device(me)? };
            }
            if self.is_done() {
                if self.kills.is_empty() {
                    return Ok(());
                }
                self.apply_kills(true);
            }
            if self.now - begin > HANGS {
                return Err("it hangs".into());
            }
            growth = if active { 500 } else { (growth * 8).min(60 * MILLI) };
            let next = self.network.next_at().unwrap_or(u64::MAX).max(self.now + 1);
            self.now = (self.now + growth).min(next);
            self.network.advance(self.now);
        }
        Err("it never ends".into())
    }

    fn is_done(&self) -> bool {
        let idle = |node: &Node| match &node.host {
            HostState::Attached(process) => {
                process.program.is_empty() && process.call.is_none() && process.ops.is_empty()
            }
            _ => false,
        };
        self.nodes.iter().all(|node| node.device.is_some() && node.notices.is_empty() && idle(node))
    }

    /// Starts devices, and lets drivers notice the death of hosts.
    fn apply_due(&mut self) -> bool {
        let (now, mut active) = (self.now, false);
        for me in 0..self.nodes.len() {
            let node = &mut self.nodes[me];
            if node.device.is_none() && node.starts_at <= now {
                node.boots += 1;
                let port = self.network.plug(me);
                node.device = Some(Dpu::plugged(&node.window, &self.limits, node.boots, port));
                self.say(|| format!("device {me} starts"));
                active = true;
            }
            let node = &mut self.nodes[me];
            let (due, later): (Vec<_>, _) = node.notices.iter().partition(|(at, _)| *at <= now);
            node.notices = later;
            for (_, session) in due {
                let word = node.window.memory().word(at::WANTED).expect("the window has a header");
                let _ = word.compare_exchange(session.to_le(), 0, Ordering::AcqRel, Ordering::Relaxed);
                active = true;
            }
        }
        active
    }

    fn apply_kills(&mut self, now: bool) -> bool {
        let mut any = false;
        while let Some(kill) = self.kills.last().copied()
            && (now || kill.step <= self.steps)
        {
            self.kills.pop();
            any = true;
            self.kill(kill);
        }
        any
    }

    fn kill(&mut self, kill: Kill) {
        let (now, me) = (self.now, kill.node);
        self.say(|| format!("node {me} dies: {kill:?}"));
        let is_early = |node: &Node| match &node.host {
            HostState::Attached(process) => process.communicator.is_none(),
            _ => true,
        };
        self.counts.early += u64::from(self.nodes.iter().any(is_early));
        self.killed_at = now;
        if self.family == Family::Hosts && !self.nodes[me].died {
            self.require_interrupts(me);
        }
        let network = self.network.clone();
        let node = &mut self.nodes[me];
        if kill.victim == Victim::Leaves {
            if matches!(node.host, HostState::Attached(_))
                && let HostState::Attached(process) =
                    std::mem::replace(&mut node.host, HostState::Dead(now + kill.back))
            {
                process.host.detach();
                node.left.push(node.incarnation);
                node.incarnation += 1;
                node.died = true;
            }
            return;
        }
        if kill.victim != Victim::Device && !matches!(node.host, HostState::Dead(_)) {
            if let HostState::Attaching(Some(attaching)) =
                std::mem::replace(&mut node.host, HostState::Dead(now + kill.back))
            {
                // The end of a process runs no destructors.
                std::mem::forget(*attaching);
            }
            node.notices.push((now + kill.noticed, node.session));
            node.incarnation += 1;
            node.died = true;
            self.counts.hosts_killed += 1;
        }
        if kill.victim != Victim::Host && node.device.take().is_some() {
            network.unplug(me, kill.keeps_datagrams);
            node.starts_at = now + kill.back;
            node.incarnation += 1;
            node.died = true;
            self.counts.devices_killed += 1;
        }
    }

    /// The host of a node dies. Receives of the others from any source end, since their message may have been to come from there.
    fn require_interrupts(&mut self, me: usize) {
        let incarnation = self.nodes[me].incarnation;
        for (other, node) in self.nodes.iter_mut().enumerate().filter(|(other, _)| *other != me) {
            let HostState::Attached(process) = &mut node.host else { continue };
            let is_posted = process.extra.is_some_and(|extra| process.ops.contains_key(&extra));
            let is_cancelled = matches!(process.call, Some((_, Call::CancelExtra)));
            let from_any = self.extras[other] == Some(ANY) && process.known[me] == Some(incarnation);
            process.extra_must_fail |= is_posted && !is_cancelled && from_any;
        }
    }

    fn step_device(&mut self, me: usize) -> Result<bool, String> {
        let now = self.now;
        let stalls = self.family == Family::All && self.random.chance(1) && self.random.chance(50);
        let node = &mut self.nodes[me];
        let Some(device) = &mut node.device else { return Ok(false) };
        if node.stalled_until > now {
            return Ok(false);
        }
        if stalls {
            // Shorter than the time after which a link or a host gives up.
            node.stalled_until = now + SECOND;
            self.counts.stalls += 1;
            return Ok(true);
        }
        let before = device.server.device().session();
        let events = device.poll(now);
        let session = device.server.device().session();
        if session != before {
            self.counts.sessions_ended += u64::from(before != 0);
            let left = device.server.in_use();
            // The next host writes no command before it finds its session.
            if left != InUse::default() {
                return Err(format!("device {me} keeps something of session {before}: {left:?}"));
            }
        }
        Ok(events != 0)
    }

    fn step_host(&mut self, me: usize) -> Result<bool, String> {
        let now = self.now;
        let node = &mut self.nodes[me];
        match &mut node.host {
            HostState::Dead(until) => {
                if *until > now {
                    return Ok(false);
                }
                node.host = HostState::Attaching(None);
                Ok(true)
            }
            HostState::Attaching(None) => {
                node.session += 1;
                let attaching = Attaching::new(node.window.memory(), node.session).ok().map(Box::new);
                let begun = attaching.is_some();
                node.host = HostState::Attaching(attaching);
                Ok(begun)
            }
            HostState::Attaching(Some(attaching)) => {
                if let Some(host) = attaching.poll() {
                    let process = self.process(me, host);
                    self.nodes[me].host = HostState::Attached(Box::new(process));
                    return Ok(true);
                }
                // A device that has started again has forgotten the wish.
                let wanted = node.window.memory().word(at::WANTED).expect("the window has a header");
                if u32::from_le(wanted.load(Ordering::Acquire)) != node.session {
                    node.host = HostState::Attaching(None);
                    return Ok(true);
                }
                Ok(false)
            }
            HostState::Attached(_) => self.step_process(me),
        }
    }

    fn process(&mut self, me: usize, host: Host<'static>) -> Process {
        self.say(|| format!("host {me} has its session"));
        Process {
            host,
            // A process that replaces one that died in this phase has no messages of this phase.
            program: if self.nodes[me].died { VecDeque::new() } else { self.program(me).into() },
            call: None,
            ops: BTreeMap::new(),
            places: (0..(WINDOW as u64 + 2)).map(|index| Window::buffers() + PLACES + index * PLACE).collect(),
            cookies: 0,
            incarnation: self.nodes[me].incarnation,
            communicator: None,
            known: vec![None; self.nodes.len()],
            extra: None,
            extra_must_fail: false,
            retry_at: 0,
            backoff: 0,
            heartbeat: (0, self.now),
        }
    }

    fn step_process(&mut self, me: usize) -> Result<bool, String> {
        let now = self.now;
        // The state is taken out, so that the rest of the job can be used.
        let HostState::Attached(mut process) = std::mem::replace(&mut self.nodes[me].host, HostState::Dead(0)) else {
            return Ok(false);
        };
        let heartbeat = match process.host.check() {
            Ok(heartbeat) => heartbeat,
            Err(why) => {
                self.say(|| format!("host {me} has lost its device: {why}"));
                return self.lose_device(me, *process);
            }
        };
        if heartbeat != process.heartbeat.0 {
            process.heartbeat = (heartbeat, now);
        } else if now - process.heartbeat.1 > SILENT {
            self.say(|| format!("device {me} is silent"));
            return self.lose_device(me, *process);
        }
        let active = match process.host.take() {
            Err(why) => return Err(format!("host {me}: {why}")),
            Ok(Some(completion)) => {
                self.complete(me, &mut process, completion)?;
                true
            }
            Ok(None) => self.act(me, &mut process)?,
        };
        self.nodes[me].host = HostState::Attached(process);
        Ok(active)
    }

    /// A host has lost its device. Its operations end, and it asks for a new session.
    fn lose_device(&mut self, me: usize, process: Process) -> Result<bool, String> {
        if !self.nodes[me].died {
            return Err(format!("host {me} has lost its device, which did not die"));
        }
        // A host that gives up takes its wish back.
        process.host.detach();
        self.nodes[me].host = HostState::Attaching(None);
        Ok(true)
    }

    fn act(&mut self, me: usize, process: &mut Process) -> Result<bool, String> {
        if process.call.is_some() || process.retry_at > self.now {
            return Ok(false);
        }
        let Some(action) = process.program.front().copied() else { return Ok(false) };
        let is_operation = matches!(action, Action::Send(_) | Action::Receive(_) | Action::Take(_) | Action::Extra(_));
        if is_operation && process.ops.len() >= WINDOW {
            return Ok(false);
        }
        if let Action::Receive(number) | Action::Take(number) = action
            && process.known[self.messages[number].from].is_none()
        {
            // The sender died before it was met. A device would wait until it is added.
            process.program.pop_front();
            self.check_failure(me, self.messages[number].from, Failure::NoSuchThing, None, self.now)?;
            self.received[number] = Some(Err(Failure::NoSuchThing));
            return Ok(true);
        }
        if let Action::Extra(source) = action
            && process.known.get(source as usize).is_some_and(Option::is_none)
        {
            process.program.pop_front();
            return Ok(true);
        }
        let memory = self.nodes[me].window.memory();
        let scratch = Window::buffers();
        let comm = process.communicator.unwrap_or(0);
        let (command, call) = match action {
            Action::Publish => {
                let into = Body { region: 0, at: scratch, bytes: 1024 };
                (Command::Publish { into }, Some(Call::Publish))
            }
            Action::Meet(peer) => {
                let other = &self.nodes[peer];
                let current = other.card.as_ref().filter(|(incarnation, _)| *incarnation == other.incarnation);
                let Some((incarnation, card)) = current else {
                    // The card of a node that died may come too late.
                    if other.died {
                        process.program.pop_front();
                    }
                    return Ok(other.died);
                };
                // The other host has to forget the earlier incarnation of this node first. Otherwise it would delete the link after
                // this node has connected it again, which looks like the end of the other node.
                if let HostState::Attached(others) = &other.host
                    && peer != me
                    && others.known[me].is_some_and(|known| known != process.incarnation)
                {
                    return Ok(false);
                }
                if process.known[peer] == Some(*incarnation) {
                    process.program.pop_front();
                    return Ok(true);
                }
                memory.write(scratch, card).map_err(|why| format!("{why:?}"))?;
                let card = Body { region: 0, at: scratch, bytes: card.len() as u64 };
                (Command::AddPeer { peer: peer as u32, card }, Some(Call::Meet(peer, *incarnation)))
            }
            Action::Forget(peer) => (Command::DeletePeer { peer: peer as u32 }, Some(Call::Forget(peer))),
            Action::DropCommunicator => match process.communicator {
                Some(comm) => (Command::DeleteCommunicator { comm }, Some(Call::DropCommunicator)),
                None => {
                    process.program.pop_front();
                    return Ok(true);
                }
            },
            Action::AddCommunicator => {
                let (context, size) = (self.phase + 1, self.nodes.len() as u32);
                let command = Command::AddCommunicator { context, rank: me as u32, size, peers: Body::default() };
                (command, Some(Call::AddCommunicator))
            }
            Action::Take(number) => {
                let Message { from, tag, .. } = self.messages[number];
                (Command::Probe { comm, source: from as u32, tag, take: true }, Some(Call::Take(number)))
            }
            Action::Send(number) => {
                let Message { to, tag, bytes, mode, .. } = self.messages[number];
                let body = self.begin(me, process, number, true)?;
                let content: Vec<u8> = (0..bytes).map(|index| byte_of(self.phase, number, index)).collect();
                memory.write(body.at, &content).map_err(|why| format!("{why:?}"))?;
                (Command::Send { comm, dest: to as u32, tag, mode, body }, None)
            }
            Action::Receive(number) => {
                let (source, tag) = self.pattern(number);
                let body = self.begin(me, process, number, false)?;
                (Command::Receive { comm, source, tag, body }, None)
            }
            Action::Extra(source) => {
                let body = self.begin(me, process, EXTRA, false)?;
                process.extra = Some(process.cookies + 1);
                (Command::Receive { comm, source, tag: EXTRA_TAG, body }, None)
            }
            Action::CancelExtra if process.extra_must_fail => {
                process.program.pop_front();
                return Ok(true);
            }
            Action::CancelExtra => match process.extra {
                Some(cookie) => (Command::Cancel { cookie }, Some(Call::CancelExtra)),
                None => {
                    process.program.pop_front();
                    return Ok(true);
                }
            },
        };
        let cookie = process.cookies + 1;
        match process.host.command(cookie, &command) {
            Err(why) => Err(format!("host {me}: {why}")),
            Ok(Pushed::Full) => {
                if let Some(op) = process.ops.remove(&cookie) {
                    process.places.push(op.place);
                }
                Ok(false)
            }
            Ok(Pushed::Done) => {
                process.cookies = cookie;
                process.call = call.map(|call| (cookie, call));
                process.program.pop_front();
                Ok(true)
            }
        }
    }

    /// Source and tag of the receive for a message.
    fn pattern(&self, number: usize) -> (u32, u32) {
        let Message { from, to, tag, .. } = self.messages[number];
        match self.styles[&(from, to)] {
            Style::Tags | Style::Take => (from as u32, tag),
            Style::AnyTag => (from as u32, ANY),
            Style::Any => (ANY, ANY),
        }
    }

    /// Notes an operation with the next cookie. Returns its memory.
    fn begin(&mut self, me: usize, process: &mut Process, message: usize, is_send: bool) -> Result<Body, String> {
        let place = process.places.pop().ok_or("there is no free place")?;
        let bytes = self.messages.get(message).map_or(0, |message| message.bytes as u64);
        // A receive of any message has room for the number of each.
        let bytes = if is_send { bytes } else { bytes.max(NUMBERED as u64) };
        process.ops.insert(process.cookies + 1, Op { message, is_send, place, began: self.now });
        if !is_send {
            let blank = vec![BLANK; bytes as usize + GUARD];
            self.nodes[me].window.memory().write(place, &blank).map_err(|why| format!("{why:?}"))?;
        }
        Ok(Body { region: 0, at: place, bytes })
    }

    fn complete(&mut self, me: usize, process: &mut Process, completion: Completion) -> Outcome {
        let Completion { cookie, result, .. } = completion;
        if let Some((awaited, call)) = process.call
            && awaited == cookie
        {
            process.call = None;
            return self.complete_call(me, process, call, result);
        }
        let op = process.ops.remove(&cookie);
        let Op { message, is_send, place, began } =
            op.ok_or_else(|| format!("host {me} got a completion of cookie {cookie}, which is not in progress"))?;
        process.places.push(place);
        self.say(|| {
            format!("host {me}, {} of message {message}: {result:?}", if is_send { "send" } else { "receive" })
        });
        if message == EXTRA {
            let died = self.nodes.iter().any(|node| node.died);
            let must_fail = std::mem::take(&mut process.extra_must_fail);
            return match result {
                Err(Failure::PeerFailed) if died => Ok(()),
                Err(Failure::Unreachable) if died && self.family == Family::All => Ok(()),
                Err(Failure::PeerFinished) if died && !must_fail => Ok(()),
                Err(Failure::Cancelled) if !must_fail => Ok(()),
                _ => Err(format!("host {me}: a receive without a message gave {result:?}")),
            };
        }
        let Message { from, to, .. } = self.messages[message];
        let other = if is_send { to } else { from };
        match result {
            Ok(done) if is_send => {
                let repeated = self.sent[message].replace(Ok(()));
                if repeated.is_some() || done != Done::default() {
                    return Err(format!("the send of message {message} gave {done:?} after {repeated:?}"));
                }
            }
            Ok(done) => {
                let got = self.identify(me, message, place, &done)?;
                self.received[message] = Some(Ok(got));
                self.counts.messages += 1;
            }
            Err(failure) => {
                self.check_failure(me, other, failure, process.known[other], began)?;
                if is_send {
                    self.sent[message] = Some(Err(failure));
                } else {
                    self.received[message] = Some(Err(failure));
                }
            }
        }
        Ok(())
    }

    /// Requires that a failure names a node that died.
    fn check_failure(&mut self, me: usize, other: usize, failure: Failure, known: Option<u32>, began: u64) -> Outcome {
        let fits = match failure {
            // On a network that loses nothing, a node that leaves tells the others.
            Failure::PeerFailed => self.family != Family::Leaves,
            // A device that died does not answer.
            Failure::Unreachable => self.family == Family::All,
            Failure::PeerFinished => known.is_some_and(|known| self.nodes[other].left.contains(&known)),
            Failure::NoSuchThing => known.is_none(),
            _ => false,
        };
        if !fits || !self.nodes[other].died {
            let died = if self.nodes[other].died { "died" } else { "lives" };
            return Err(format!("host {me}: an operation with node {other}, which {died}, ended with {failure}"));
        }
        match failure {
            Failure::PeerFailed => self.counts.failed += 1,
            Failure::Unreachable => self.counts.unreachable += 1,
            Failure::PeerFinished => self.counts.finished += 1,
            _ => self.counts.unknown += 1,
        }
        let since = self.now - self.killed_at.max(began);
        self.counts.longest_notice = self.counts.longest_notice.max(since);
        Ok(())
    }

    /// Which message a receive has got. Its bytes are checked.
    fn identify(&self, me: usize, planned: usize, place: u64, done: &Done) -> Result<usize, String> {
        let room = self.messages[planned].bytes.max(NUMBERED);
        let (source, _) = self.pattern(planned);
        let from = if source == ANY { done.rank } else { source } as usize;
        let mut memory = vec![0; room + GUARD];
        self.nodes[me].window.memory().read(place, &mut memory).map_err(|why| format!("{why:?}"))?;
        let (received, delivered) = (done.received as usize, done.delivered as usize);
        let wrong = |what: &str| format!("host {me} received {done:?} for message {planned}: {what}");
        if done.rank as usize != from || delivered != received.min(room) {
            return Err(wrong("the rank or the lengths are wrong"));
        }
        if memory[delivered..].iter().any(|byte| *byte != BLANK) {
            return Err(wrong("bytes beyond the message were written"));
        }
        let taken = |number: &usize| self.received.contains(&Some(Ok(*number)));
        let fits = |number: &usize| {
            let message = &self.messages[*number];
            let place = (message.from, message.to, message.tag, message.bytes) == (from, me, done.tag, received);
            let content = (0..delivered).all(|index| memory[index] == byte_of(self.phase, *number, index));
            place && content && !taken(number)
        };
        (0..self.messages.len()).find(fits).ok_or_else(|| wrong("no message has these bytes"))
    }

    fn complete_call(
        &mut self,
        me: usize,
        process: &mut Process,
        call: Call,
        result: Result<Done, Failure>,
    ) -> Outcome {
        if result != Err(Failure::NotFound) {
            self.say(|| format!("host {me}, {call:?}: {result:?}"));
        }
        match (call, result) {
            (Call::Publish, Ok(done)) => {
                let mut card = vec![0; done.value as usize];
                let memory = self.nodes[me].window.memory();
                memory.read(Window::buffers(), &mut card).map_err(|why| format!("{why:?}"))?;
                self.nodes[me].card = Some((process.incarnation, card));
            }
            (Call::Meet(peer, incarnation), Ok(_)) => process.known[peer] = Some(incarnation),
            // The device has not noticed that the peer died. The host knows it by other means.
            (Call::Meet(peer, _), Err(Failure::Malformed)) if process.known[peer].is_some() => {
                process.program.push_front(Action::Meet(peer));
                process.program.push_front(Action::Forget(peer));
            }
            (Call::Forget(peer), Ok(_)) => process.known[peer] = None,
            (Call::DropCommunicator, Ok(_)) => process.communicator = None,
            (Call::AddCommunicator, Ok(done)) => process.communicator = Some(done.value),
            (Call::CancelExtra, result) => {
                let extra = process.extra.take().ok_or("nothing was to be cancelled")?;
                // Its completion comes after that of the command, or came before it.
                if result.is_ok() != process.ops.contains_key(&extra) {
                    return Err(format!("host {me}: the receive {extra} was cancelled: {result:?}"));
                }
                self.counts.cancelled += u64::from(result.is_ok());
            }
            (Call::Take(number), Ok(done)) => {
                process.backoff = 0;
                let body = self.begin(me, process, number, false)?;
                let cookie = process.cookies + 1;
                let command = Command::ReceiveMatched { message: done.value, body };
                // The ring has room: the host has taken all completions, and has fewer operations than the ring has slots.
                if process.host.command(cookie, &command) != Ok(Pushed::Done) {
                    return Err(format!("host {me}: there is no room for a command"));
                }
                process.cookies = cookie;
            }
            (Call::Take(number), Err(Failure::NotFound | Failure::Full)) => {
                process.program.push_front(Action::Take(number));
                process.backoff = (process.backoff * 2).clamp(1000, MILLI);
                process.retry_at = self.now + process.backoff;
            }
            (Call::Take(number), Err(failure)) => {
                let from = self.messages[number].from;
                self.check_failure(me, from, failure, process.known[from], self.now)?;
                self.received[number] = Some(Err(failure));
            }
            (call, Err(failure)) => return Err(format!("host {me}: {call:?} failed: {failure}")),
        }
        Ok(())
    }

    /// Requires that all messages between nodes that live have arrived, and the order of all that have arrived.
    fn check_phase(&mut self) -> Outcome {
        for (number, message) in self.messages.iter().enumerate() {
            let lives = !self.nodes[message.from].died && !self.nodes[message.to].died;
            let (sent, received) = (self.sent[number], self.received[number]);
            let arrived = matches!((sent, received), (Some(Ok(())), Some(Ok(_))));
            if lives && !arrived {
                return Err(format!("message {number}, {message:?}: sent {sent:?}, received {received:?}"));
            }
            // Each operation of a host that lives has ended.
            if !self.nodes[message.from].died && sent.is_none() || !self.nodes[message.to].died && received.is_none() {
                return Err(format!("message {number}, {message:?} was forgotten"));
            }
        }
        let mut latest: BTreeMap<(usize, usize, u32), usize> = BTreeMap::new();
        for (planned, got) in self.received.iter().enumerate() {
            let Some(Ok(got)) = got else { continue };
            let (from, to) = (self.messages[*got].from, self.messages[planned].to);
            let (_, tag) = self.pattern(planned);
            if latest.insert((from, to, tag), *got).is_some_and(|before| before >= *got) {
                return Err(format!("message {got} was received by the receive for {planned}, out of order"));
            }
        }
        self.counts.steps += self.steps;
        self.say(|| format!("phase {} took {} steps", self.phase, self.steps));
        Ok(())
    }

    /// All hosts end their sessions. No device keeps anything.
    fn end(&mut self) -> Outcome {
        for me in 0..self.nodes.len() {
            let host = std::mem::replace(&mut self.nodes[me].host, HostState::Dead(u64::MAX));
            let HostState::Attached(process) = host else { return Err(format!("host {me} has no session")) };
            process.host.detach();
            self.now += 1000;
            let now = self.now;
            let device = self.nodes[me].device.as_mut().ok_or("a device is down")?;
            device.poll(now);
            let left = device.server.in_use();
            if left != InUse::default() {
                return Err(format!("device {me} keeps {left:?}"));
            }
        }
        Ok(())
    }

    /// What each node does.
    fn situation(&mut self) -> String {
        let mut text = String::new();
        for (me, node) in self.nodes.iter_mut().enumerate() {
            let what = match &node.host {
                HostState::Dead(until) => format!("is dead until {until}"),
                HostState::Attaching(_) => "asks for a session".into(),
                HostState::Attached(process) => {
                    format!("next {:?}, call {:?}, {:?}", process.program.front(), process.call, process.ops.values())
                }
            };
            let device = node.device.as_mut().map(|device| device.server.in_use());
            let _ = writeln!(text, "node {me}, died {}: host {what}; device {device:?}", node.died);
        }
        text
    }
}

fn kill(family: Family, nodes: usize, random: &mut Random) -> Kill {
    let kill = Kill {
        step: if random.chance(300) { random.length(1 << 12) } else { random.below(900) },
        node: random.below(nodes as u64) as usize,
        victim: random.pick(&[Victim::Host, Victim::Device, Victim::Both, Victim::Leaves]),
        noticed: random.pick(&[0, 10_000, MILLI, SECOND]),
        back: random.pick(&[0, 10_000, MILLI, 3 * SECOND, 20 * SECOND]),
        keeps_datagrams: random.chance(500),
    };
    match family {
        Family::All => kill,
        Family::Hosts => Kill { step: CONNECTED + kill.step, victim: Victim::Host, noticed: 0, ..kill },
        Family::Leaves => Kill { step: CONNECTED + kill.step, victim: Victim::Leaves, ..kill },
    }
}
