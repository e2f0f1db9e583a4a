//! Runs a plan: the real engine on every node, one thread, virtual time.

use std::fmt;

use towline_core::arena::Arena;
use towline_core::btl::{Peer, Rail};
use towline_core::mtl::{Comm, Envelope, Failure, Group, Mtl, Refusal, Request, Sending, Source, Status, Tag};
use towline_core::pml::{Config, Counters, Rails};
use towline_core::time::Instant;

use super::checker::{self, Summary, Violation};
use super::faults::{Counts, Faults, Make};
use super::history::{History, Mode, Outcome, Receive, Record, digest};
use super::net::Net;
use super::plan::{Cancel, NEVER, Plan, Step};
use super::rail::SimRail;
use super::room::Room;
use crate::dice::{Dice, patterned};

/// Rounds in which nothing at all happened, with time moving ever faster, after which a job is stuck.
const IDLE_ROUNDS: u32 = 3000;
/// Rounds after which a job that is still busy is taken to run in circles.
const ROUNDS: u64 = 3_000_000;

/// Virtual nanoseconds after which a job is taken to be too slow.
const HORIZON: u64 = 20_000_000_000;

/// The rails of a node.
pub struct Set(pub Vec<SimRail>);

impl Rails for Set {
    type Rail = SimRail;

    fn count(&self) -> usize {
        self.0.len()
    }

    fn rail(&self, index: usize) -> Option<&SimRail> {
        self.0.get(index)
    }

    fn rail_mut(&mut self, index: usize) -> Option<&mut SimRail> {
        self.0.get_mut(index)
    }
}

/// What a job runs with.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The engines; `peers` is the number of nodes. The seed and the first sequence are made each node's own.
    pub config: Config,
    /// The rails of each node.
    pub makes: Vec<Make>,
    /// What goes wrong.
    pub faults: Faults,
    /// The programs.
    pub plan: Plan,
    /// Virtual nanoseconds between two rounds in which something happened, at most.
    pub pace: u64,
    /// For all further choices.
    pub dice: Dice,
}

/// What came of a job that went well.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What was checked.
    pub summary: Summary,
    /// What happened on the network.
    pub counts: Counts,
    /// What the engines did, summed up.
    pub transitions: Vec<(&'static str, u64)>,
    /// Nodes of the job.
    pub nodes: u32,
    /// Virtual nanoseconds.
    pub took: u64,
}

/// Why a job did not go well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// Nothing moves any more, or all runs in circles; with what is left to do.
    Stuck(String),
    /// The history is wrong.
    Wrong(Violation),
    /// A call was refused that must not be.
    Refused(u32, String),
    /// A receive did not get what its probe had found.
    ProbeDiffers(u32, String),
    /// An engine counted what reliable rails and honest peers cannot have caused.
    Miscounted(u32, &'static str, u64),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stuck(what) => write!(f, "the job is stuck: {what}"),
            Self::Wrong(violation) => write!(f, "{violation}"),
            Self::Refused(node, why) => write!(f, "node {node}: {why}"),
            Self::ProbeDiffers(node, what) => {
                write!(f, "node {node}: the probed message is not the received one: {what}")
            }
            Self::Miscounted(node, what, count) => write!(f, "node {node} counted {count} {what}"),
        }
    }
}

impl From<Violation> for Trouble {
    fn from(violation: Violation) -> Self {
        Self::Wrong(violation)
    }
}

type Engine<'m> = Mtl<'m, Set>;

/// Runs a job to its end and judges it.
///
/// # Errors
/// The first [`Trouble`].
pub fn run(setting: Setting) -> Result<Report, Trouble> {
    let Setting { config, makes, faults, plan, pace, mut dice } = setting;
    let nodes = plan.programs.len() as u32;
    let net = Net::new(nodes, makes, faults, dice.fork());
    let comms = plan.permanent + 1;
    let sample = net.rails(0);
    let attributes: Vec<_> = sample.iter().map(Rail::attributes).collect();
    let bytes = Engine::bytes(&config, comms, &attributes);
    let mut memories: Vec<Vec<u64>> = (0..nodes).map(|_| vec![0; bytes.div_ceil(8) + 1]).collect();
    let mut engines = vec![];
    for (node, memory) in memories.iter_mut().enumerate() {
        let block = std::ptr::NonNull::from(memory.as_mut_slice()).cast();
        // SAFETY: the memory is fresh zeros, borrowed for as long as the engine lives, and used by nothing else.
        let mut arena = unsafe { Arena::from_zeroed(block, memory.len() * 8) };
        let first_sequence = config.first_sequence.wrapping_add(node as u64);
        let config = Config { seed: dice.word(), first_sequence, ..config };
        let engine = Mtl::new(config, comms, &mut arena, Set(net.rails(node as u32)));
        engines.push(engine.map_err(|error| Trouble::Refused(node as u32, error.to_string()))?);
    }
    introduce(&mut engines)?;
    let nodes = engines.into_iter().enumerate().map(|(node, engine)| Node::new(node as u32, engine, &plan));
    let mut job = Job {
        nodes: nodes.collect::<Result<_, _>>()?,
        posted: vec![false; plan.receives.len()],
        plan: &plan,
        net,
        dice,
        history: History::default(),
        now: 0,
        requests: config.requests as usize,
        pace,
        scratch: vec![],
    };
    job.run()?;
    job.judge()
}

/// Lets every engine know every other, and itself.
fn introduce(engines: &mut [Engine<'_>]) -> Result<(), Trouble> {
    let cards: Vec<Vec<Vec<u8>>> = engines
        .iter_mut()
        .map(|engine| engine.pml().rails().0.iter().map(|rail| rail.card().to_vec()).collect())
        .collect();
    let params: Vec<_> = engines.iter().map(|engine| engine.params()).collect();
    for (node, engine) in engines.iter_mut().enumerate() {
        for (other, params) in params.iter().enumerate() {
            let peer = Peer(other as u32);
            let added = engine.add_peer(peer, params, |rail, way| way.add_peer(peer, &cards[other][rail]));
            added.map_err(|why| Trouble::Refused(node as u32, why.to_string()))?;
        }
    }
    Ok(())
}

/// Something under way at a node.
struct Op {
    /// Its number in the history.
    number: u32,
    request: Request,
    room: Room,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Send,
    Recv { receive: Receive, planned: u32, cancel: Option<u32>, found: Option<Envelope> },
}

/// A message that a matched probe took and that is not received yet.
struct Taken {
    number: u32,
    message: towline_core::mtl::Message,
    found: Envelope,
    receive: Receive,
    planned: u32,
    wait: u32,
}

struct Node<'m> {
    me: u32,
    engine: Engine<'m>,
    /// The communicators that exist here, by their number in the plan.
    comms: Vec<Option<Comm>>,
    program: &'m [Step],
    next: usize,
    ops: Vec<Op>,
    taken: Vec<Taken>,
    away_until: u64,
    /// Sends that are over, with their memory: nobody may look at it any more.
    old: Vec<Room>,
    /// Receives that are over: number, room and bytes delivered.
    rooms: Vec<(u32, Room, u64)>,
    before: [u32; 3],
}

struct Job<'m> {
    nodes: Vec<Node<'m>>,
    /// Receives of the plan that have been posted.
    posted: Vec<bool>,
    plan: &'m Plan,
    net: Net,
    dice: Dice,
    history: History,
    now: u64,
    /// Requests of each engine.
    requests: usize,
    pace: u64,
    scratch: Vec<u8>,
}

impl<'m> Node<'m> {
    fn new(me: u32, mut engine: Engine<'m>, plan: &'m Plan) -> Result<Self, Trouble> {
        let before = engine.pml().used();
        let mut node = Self {
            me,
            engine,
            comms: vec![None; plan.comms.len()],
            program: &plan.programs[me as usize],
            next: 0,
            ops: vec![],
            taken: vec![],
            away_until: 0,
            old: vec![],
            rooms: vec![],
            before,
        };
        for comm in 0..plan.permanent {
            node.join(comm, plan)?;
        }
        Ok(node)
    }

    fn join(&mut self, comm: u32, plan: &'m Plan) -> Result<(), Trouble> {
        let what = &plan.comms[comm as usize];
        let (group, rank) = match &what.table {
            None => (Group::World { size: plan.programs.len() as u32 }, self.me),
            Some(table) => (Group::Table(table), rank_in(table, self.me)),
        };
        let added = self.engine.add_comm(what.context, group, rank);
        let added = added.map_err(|why| Trouble::Refused(self.me, why.to_string()))?;
        self.comms[comm as usize] = Some(added);
        Ok(())
    }

    fn comm(&self, comm: u32) -> Comm {
        self.comms[comm as usize].expect("the plan makes communicators before it uses them")
    }

    fn done(&self) -> bool {
        self.next == self.program.len() && self.ops.is_empty() && self.taken.is_empty()
    }
}

fn rank_in(table: &[u32], node: u32) -> u32 {
    table.iter().position(|other| *other == node).expect("every node is in every table") as u32
}

fn rank(plan: &Plan, comm: u32, node: u32) -> u32 {
    plan.comms[comm as usize].table.as_ref().map_or(node, |table| rank_in(table, node))
}

fn source_of(plan: &Plan, receive: &Receive) -> Source {
    receive.source.map_or(Source::Any, |source| Source::Rank(rank(plan, receive.comm, source)))
}

fn tag_of(receive: &Receive) -> Tag {
    receive.tag.map_or(Tag::Any, Tag::Is)
}

fn mode_of(mode: Mode) -> towline_core::mtl::Mode {
    match mode {
        Mode::Standard => towline_core::mtl::Mode::Standard,
        Mode::Buffered => towline_core::mtl::Mode::Buffered,
        Mode::Synchronous => towline_core::mtl::Mode::Synchronous,
        Mode::Ready => towline_core::mtl::Mode::Ready,
        Mode::Complete => towline_core::mtl::Mode::Complete,
    }
}

/// Whether a node could take its next step.
#[derive(PartialEq, Eq)]
enum Went {
    On,
    Nowhere,
}

impl Job<'_> {
    /// All nodes in turn, in an order by chance, until all are done and all is quiet.
    fn run(&mut self) -> Result<(), Trouble> {
        let (mut idle, mut quiet) = (0u32, 0u32);
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        for round in 0..ROUNDS {
            if round % 4 == 0 {
                self.dice.shuffle(&mut order);
            }
            let frames = self.net.counts().frames;
            let mut active = false;
            for node in order.iter().copied() {
                if self.now >= self.nodes[node].away_until {
                    active |= self.turn(node)?;
                }
            }
            active |= self.net.counts().frames != frames;
            let done = self.nodes.iter().all(Node::done);
            if done && !active && self.net.under_way() == 0 {
                quiet += 1;
                if quiet > 50 {
                    return Ok(());
                }
            }
            idle = if active { 0 } else { idle + 1 };
            if idle > IDLE_ROUNDS || self.now > HORIZON {
                return Err(Trouble::Stuck(self.situation()));
            }
            self.pass_time(active, idle);
        }
        Err(Trouble::Stuck(format!("it runs in circles, {}", self.situation())))
    }

    /// Moves the clock: a little after activity, else to whatever comes next, else ever faster.
    fn pass_time(&mut self, active: bool, idle: u32) {
        let step = if active { 1 + self.dice.below(self.pace) } else { 100 << (idle / 100).min(16) };
        let away = self.nodes.iter().map(|node| node.away_until).filter(|until| *until > self.now).min();
        let arrival = self.net.next_at().filter(|at| *at > self.now);
        let next = [away, arrival].into_iter().flatten().min();
        self.now = match next {
            Some(next) if !active && idle < 50 => next,
            _ => self.now + step,
        };
    }

    /// One node: some steps of its program, progress, and what has come to an end. Whether anything happened.
    fn turn(&mut self, at: usize) -> Result<bool, Trouble> {
        let mut active = false;
        for _ in 0..self.dice.below(6) {
            match self.step(at)? {
                Went::On => active = true,
                Went::Nowhere => break,
            }
            if self.now < self.nodes[at].away_until {
                return Ok(true);
            }
        }
        active |= self.nodes[at].engine.progress(Instant::from_nanos(self.now)) > 0;
        let (_, faults) = transitions(self.nodes[at].engine.counters());
        if let Some((what, count)) = faults.into_iter().find(|(_, count)| *count != 0) {
            return Err(Trouble::Miscounted(at as u32, what, count));
        }
        active |= self.receive_taken(at)?;
        active |= self.complete(at)?;
        Ok(active)
    }

    fn step(&mut self, at: usize) -> Result<Went, Trouble> {
        let plan = self.plan;
        let node = &mut self.nodes[at];
        let Some(step) = node.program.get(node.next) else { return Ok(Went::Nowhere) };
        // A message that was taken needs a request soon: it is not for another to use up.
        if node.ops.len() + node.taken.len() >= self.requests
            && matches!(step, Step::Send(..) | Step::Recv(..) | Step::Vain(_) | Step::Probe(_) | Step::Take(_))
        {
            return Ok(Went::Nowhere);
        }
        let went = match step {
            Step::Send(message, after) => {
                if !after.iter().all(|receive| self.posted[*receive as usize]) {
                    return Ok(Went::Nowhere);
                }
                self.send(at, *message)?
            }
            Step::Recv(planned, cancel) => {
                let receive = plan.receives[*planned as usize];
                let cancel = match cancel {
                    Cancel::Never => None,
                    Cancel::Now => Some(0),
                    Cancel::Later => Some(self.dice.between(1, 200) as u32),
                };
                self.recv(at, receive, *planned, cancel, None)?
            }
            Step::Probe(planned) => self.probe(at, *planned)?,
            Step::Take(planned) => self.take(at, *planned),
            Step::Vain(comm) => {
                let receive = Receive { at: node.me, comm: *comm, source: None, tag: Some(NEVER), room: 4 };
                let cancel = Some(self.dice.below(100) as u32);
                self.recv(at, receive, u32::MAX, cancel, None)?
            }
            Step::Look(comm) => {
                let comm = node.comm(*comm);
                node.engine.iprobe(comm, Source::Any, Tag::Any);
                Went::On
            }
            Step::Away(nanos) => {
                node.away_until = self.now + nanos;
                Went::On
            }
            Step::Join(comm) => {
                node.join(*comm, plan)?;
                Went::On
            }
            Step::Leave(comm) => {
                if !node.ops.is_empty() || !node.taken.is_empty() {
                    return Ok(Went::Nowhere);
                }
                self.net.trace(at as u32, || format!("deletes communicator {comm}"));
                let left = node.comms[*comm as usize].take().expect("joined before");
                node.engine.del_comm(left);
                Went::On
            }
        };
        if went == Went::On {
            self.nodes[at].next += 1;
        }
        Ok(went)
    }

    fn send(&mut self, at: usize, message: u32) -> Result<Went, Trouble> {
        let node = &mut self.nodes[at];
        let message = self.plan.messages[message as usize];
        let dest = rank(self.plan, message.comm, message.to);
        let mut room = Room::any(message.len as usize, &mut self.dice);
        // The bytes belong to the number that the send will have.
        let number = self.history.next_send();
        room.fill(&patterned(number.into(), message.len as usize));
        let (comm, span) = (node.comm(message.comm), room.span());
        // SAFETY: the room's memory stays as it is in `ops` until the outcome is taken.
        let sent = unsafe { node.engine.isend(comm, dest, message.tag, mode_of(message.mode), span) };
        match sent {
            Ok(sending) => {
                let number = self.history.send(message);
                self.net.trace(at as u32, || format!("isend {number} {message:?}: {sending:?}"));
                match sending {
                    Sending::Complete => {
                        self.history.note(Record::Sent(number, None));
                        room.scribble();
                        node.old.push(room);
                    }
                    Sending::Pending(request) => node.ops.push(Op { number, request, room, kind: Kind::Send }),
                }
                Ok(Went::On)
            }
            Err(Refusal::Busy) => Ok(Went::Nowhere),
            Err(refusal) => Err(Trouble::Refused(node.me, refusal.to_string())),
        }
    }

    fn recv(
        &mut self,
        at: usize,
        receive: Receive,
        planned: u32,
        cancel: Option<u32>,
        found: Option<Envelope>,
    ) -> Result<Went, Trouble> {
        let node = &mut self.nodes[at];
        let mut room = Room::any(receive.room as usize, &mut self.dice);
        let (comm, span) = (node.comm(receive.comm), room.span());
        let (source, tag) = (source_of(self.plan, &receive), tag_of(&receive));
        // SAFETY: the room's memory is not accessed in `ops` until the outcome is taken.
        let request = match unsafe { node.engine.irecv(comm, source, tag, span) } {
            Ok(request) => request,
            Err(Refusal::Busy) => return Ok(Went::Nowhere),
            Err(refusal) => return Err(Trouble::Refused(node.me, refusal.to_string())),
        };
        let number = self.history.recv(receive);
        self.net.trace(at as u32, || format!("irecv {number} {receive:?}: {request:?}"));
        let kind = Kind::Recv { receive, planned, cancel, found };
        let mut op = Op { number, request, room, kind };
        if cancel == Some(0) {
            op.kind = Kind::Recv { receive, planned, cancel: None, found };
            if node.engine.cancel(request) {
                // Taken back before anything could come: its place in the order is still the next.
                let Some(outcome) = node.engine.test(request) else {
                    return Err(Trouble::Refused(node.me, "a cancelled receive is not over".into()));
                };
                self.end_receive(at, op, outcome, receive, found)?;
                let vain = planned == u32::MAX;
                return if vain { Ok(Went::On) } else { self.recv(at, receive, planned, None, found) };
            }
        }
        node.ops.push(op);
        if let Some(posted) = self.posted.get_mut(planned as usize) {
            *posted = true;
        }
        Ok(Went::On)
    }

    /// Probes; what is found is received by its own source and tag, and must be the same.
    fn probe(&mut self, at: usize, planned: u32) -> Result<Went, Trouble> {
        let receive = self.plan.receives[planned as usize];
        let node = &mut self.nodes[at];
        let comm = node.comm(receive.comm);
        let (source, tag) = (source_of(self.plan, &receive), tag_of(&receive));
        let Some(found) = node.engine.iprobe(comm, source, tag) else { return Ok(Went::Nowhere) };
        let exact = Receive { source: Some(found.peer.0), tag: Some(found.tag), ..receive };
        self.recv(at, exact, planned, None, Some(found))
    }

    fn take(&mut self, at: usize, planned: u32) -> Went {
        let receive = self.plan.receives[planned as usize];
        let node = &mut self.nodes[at];
        let comm = node.comm(receive.comm);
        let (source, tag) = (source_of(self.plan, &receive), tag_of(&receive));
        let Ok(Some((message, found))) = node.engine.improbe(comm, source, tag) else { return Went::Nowhere };
        let number = self.history.recv(receive);
        self.net.trace(at as u32, || format!("improbe {number} {receive:?}: {found:?}"));
        let wait = self.dice.below(50) as u32;
        node.taken.push(Taken { number, message, found, receive, planned, wait });
        Went::On
    }

    /// Receives messages that were taken a while ago.
    fn receive_taken(&mut self, at: usize) -> Result<bool, Trouble> {
        let node = &mut self.nodes[at];
        let mut any = false;
        for mut taken in std::mem::take(&mut node.taken) {
            if taken.wait > 0 {
                taken.wait -= 1;
                any = true;
                node.taken.push(taken);
                continue;
            }
            let Taken { number, message, found, receive, planned, .. } = taken;
            let mut room = Room::any(receive.room as usize, &mut self.dice);
            // SAFETY: the room's memory is not accessed in `ops` until the outcome is taken.
            match unsafe { node.engine.imrecv(message, room.span()) } {
                Ok(request) => {
                    let kind = Kind::Recv { receive, planned, cancel: None, found: Some(found) };
                    node.ops.push(Op { number, request, room, kind });
                    any = true;
                }
                Err((Refusal::Busy, message)) => {
                    node.taken.push(Taken { number, message, found, receive, planned, wait: 0 });
                }
                Err((refusal, _)) => return Err(Trouble::Refused(node.me, refusal.to_string())),
            }
        }
        Ok(any)
    }

    /// Ends what is over, and cancels what is to be cancelled.
    fn complete(&mut self, at: usize) -> Result<bool, Trouble> {
        let mut any = false;
        for mut op in std::mem::take(&mut self.nodes[at].ops) {
            let engine = &mut self.nodes[at].engine;
            if let Kind::Recv { cancel, .. } = &mut op.kind
                && let Some(wait) = cancel.take()
            {
                any = true;
                if wait > 0 {
                    *cancel = Some(wait - 1);
                } else {
                    engine.cancel(op.request);
                }
            }
            match (engine.test(op.request), op.kind) {
                (None, _) => {
                    self.nodes[at].ops.push(op);
                    continue;
                }
                (Some(outcome), Kind::Send) => self.end_send(at, op, outcome),
                (Some(outcome), Kind::Recv { receive, planned, found, .. }) => {
                    let cancelled = self.end_receive(at, op, outcome, receive, found)?;
                    if cancelled && planned != u32::MAX && self.recv(at, receive, planned, None, None)? != Went::On {
                        return Err(Trouble::Refused(at as u32, "a cancelled receive did not free its request".into()));
                    }
                }
            }
            any = true;
        }
        Ok(any)
    }

    fn end_send(&mut self, at: usize, mut op: Op, outcome: Result<Status, Failure>) {
        self.net.trace(at as u32, || format!("send {} is over: {outcome:?}", op.number));
        self.history.note(Record::Sent(op.number, outcome.err().map(|failure| failure.to_string())));
        op.room.scribble();
        self.nodes[at].old.push(op.room);
    }

    /// Notes how a receive ended; whether it was cancelled.
    fn end_receive(
        &mut self,
        at: usize,
        op: Op,
        outcome: Result<Status, Failure>,
        receive: Receive,
        found: Option<Envelope>,
    ) -> Result<bool, Trouble> {
        self.net.trace(at as u32, || format!("receive {} is over: {outcome:?}", op.number));
        let (status, truncated) = match outcome {
            Ok(status) => (status, false),
            Err(Failure::Truncated(status)) => (status, true),
            Err(Failure::Cancelled) => {
                self.history.note(Record::Received(op.number, Outcome::Cancelled));
                self.nodes[at].rooms.push((op.number, op.room, 0));
                return Ok(true);
            }
            Err(failure) => return Err(Trouble::Refused(at as u32, format!("{receive:?}: {failure}"))),
        };
        if let Some(found) = found
            && (found.peer, found.tag, found.len) != (status.peer, status.tag, status.received)
        {
            return Err(Trouble::ProbeDiffers(at as u32, format!("{found:?}, {status:?}")));
        }
        let delivered = status.delivered.min(receive.room);
        op.room.take(delivered as usize, &mut self.scratch);
        let outcome = Outcome::Received {
            source: status.peer.0,
            tag: status.tag,
            received: status.received,
            delivered: status.delivered,
            truncated,
            digest: digest(&self.scratch),
        };
        self.history.note(Record::Received(op.number, outcome));
        self.nodes[at].rooms.push((op.number, op.room, delivered));
        Ok(false)
    }

    /// Looks at all that is left, and judges the whole.
    fn judge(mut self) -> Result<Report, Trouble> {
        let mut report = Report { nodes: self.nodes.len() as u32, took: self.now, ..Report::default() };
        for node in &mut self.nodes {
            for (number, mut room, delivered) in std::mem::take(&mut node.rooms) {
                room.take(delivered as usize, &mut self.scratch);
                let sum = digest(&self.scratch);
                self.history.note(Record::Room(number, sum, room.intact(delivered as usize)));
            }
            for comm in node.comms.iter_mut().filter_map(Option::take) {
                node.engine.del_comm(comm);
            }
            let after = node.engine.pml().used();
            for (what, (before, after)) in ["requests", "envelopes", "units"].iter().zip(node.before.iter().zip(after))
            {
                let (node, before, after) = (node.me, u64::from(*before), u64::from(after));
                self.history.note(Record::Level { node, what, before, after });
            }
            let (done, _) = transitions(node.engine.counters());
            add(&mut report.transitions, &done);
        }
        for node in std::mem::take(&mut self.nodes) {
            drop(node.engine.finalize());
        }
        report.counts = self.net.counts();
        let Counts { prepared, undone, .. } = report.counts;
        self.history.note(Record::Level { node: 0, what: "prepared requests", before: 0, after: prepared - undone });
        report.summary = checker::check(&self.history)?;
        Ok(report)
    }

    /// What each node still has to do.
    fn situation(&mut self) -> String {
        let plan = self.plan;
        let nodes = self.nodes.iter_mut().filter(|node| !node.done()).map(|node| {
            let step = node.program.get(node.next).map(|step| match step {
                Step::Send(message, after) => format!("{:?} after {after:?}", plan.messages[*message as usize]),
                Step::Recv(receive, _) | Step::Probe(receive) | Step::Take(receive) => {
                    format!("{step:?} {:?}", plan.receives[*receive as usize])
                }
                _ => format!("{step:?}"),
            });
            let ops = node.ops.iter().map(|op| match op.kind {
                Kind::Send => format!("send {}", op.number),
                Kind::Recv { receive, .. } => format!("receive {} {receive:?}", op.number),
            });
            let ops: Vec<_> = ops.collect();
            let used = node.engine.pml().used();
            let counters = node.engine.counters();
            format!("\nnode {} next {step:?}\n  has {ops:?}\n  used {used:?}, {counters:?}", node.me)
        });
        let nodes: Vec<_> = nodes.collect();
        format!("at {} ns, {} frames under way{}", self.now, self.net.under_way(), nodes.concat())
    }
}

/// A count with its name.
type Named = (&'static str, u64);

/// What an engine did, and what it must not have met.
fn transitions(counters: &Counters) -> ([Named; 20], [Named; 5]) {
    macro_rules! named {
        ($($name:ident)*) => { [$((stringify!($name), counters.$name)),*] };
    }
    let done = named!(eager_sent rendezvous_sent fragments_sent fragments_received acks_sent finishes_sent credits_sent
        notices_sent asks_sent answers_sent nothings_sent rejects_sent rejects_received expected unexpected parked busy lent
        fetched unfetched);
    let faults = named!(malformed stale trespasses foreign lost);
    (done, faults)
}

/// Adds up counts by name.
pub fn add(sums: &mut Vec<(&'static str, u64)>, counts: &[(&'static str, u64)]) {
    for (name, count) in counts {
        match sums.iter_mut().find(|(other, _)| other == name) {
            Some((_, sum)) => *sum += count,
            None => sums.push((name, *count)),
        }
    }
}
