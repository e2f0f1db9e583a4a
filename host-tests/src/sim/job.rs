//! Runs a plan: the real engine on every node, one thread, virtual time.

use std::collections::BTreeSet;
use std::fmt;

use towline_core::convertor::Span;
use towline_core::mtl::{Mode, Refusal};
use towline_core::pml::{Config, Counters};
use towline_core::rail::{Lost, Peer, Rail, Unreachable};
use towline_core::time::{Duration, Instant};

use super::checker::{self, Summary, Violation};
use super::faults::Counts;
use super::faults::{Faults, Make, Planted};
use super::history::{History, Record};
use super::mishaps::Meeting;
use super::net::Net;
use super::node::{Kind, Node};
use super::plan::{Plan, Step};
use super::rests::Vigil;
use super::steps::Went;
use super::ways::{Links, Set};
use super::windows::{Desk, Known, Windows, look_at_windows, one_sided_counts};
use crate::dice::Dice;

/// Rounds in which nothing at all happened, with time moving ever faster, after which a job is stuck.
const IDLE_ROUNDS: u32 = 3000;
/// Rounds that bring nobody on, after which a job that is still busy is taken to run in circles.
const ROUNDS: u64 = 20_000_000;

/// Rounds without any work after which programs recover from failures.
const STILL: u32 = 3000;

/// Requests for recovery.
const SPARE: u32 = 12;

/// Recoveries that bring no work, after which a job is stuck.
const TRIES: u32 = 60;

/// Virtual nanoseconds after which a job is taken to be too slow.
const HORIZON: u64 = 20_000_000_000;

/// Virtual nanoseconds within which a job must be over once all faults have stopped.
pub const LIVENESS: u64 = 5_000_000_000;

/// A node that dies.
#[derive(Clone, Copy, Debug)]
pub struct Death {
    /// Which.
    pub node: u32,
    /// After how many of the steps of its own, calls of its engine among them, in its present life.
    pub calls: u64,
    /// How many nanoseconds later it comes back, if it does.
    pub back_after: Option<u64>,
    /// Its host is gone with it.
    pub with_host: bool,
}

/// A rail that a node disables for a while.
#[derive(Clone, Copy, Debug)]
pub struct Toggle {
    /// Whose.
    pub node: u32,
    /// Which.
    pub rail: u32,
    /// After how many of the node's steps, as of a [`Death`].
    pub calls: u64,
    /// For so many nanoseconds.
    pub span: u64,
}

/// What a job runs with.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The engines; `peers` is the number of nodes. The seed and the first sequence are made each node's own.
    pub config: Config,
    /// The rails of each node.
    pub makes: Vec<Make>,
    /// Rails are links over those; else as they are.
    pub links: Option<Links>,
    /// What goes wrong.
    pub faults: Faults,
    /// Which nodes die; of each node, in the order given.
    pub deaths: Vec<Death>,
    /// Pairs of nodes that are cut off from each other for longer than they put up with: since when.
    pub severed: Vec<(u32, u32, u64)>,
    /// Those of them that only a rest comes between: who stands still, and who gives up.
    pub rested: BTreeSet<(u32, u32)>,
    /// Rails that are disabled and enabled.
    pub toggles: Vec<Toggle>,
    /// The stall time-out of all engines, in nanoseconds.
    pub stall: Option<u64>,
    /// When all faults stop: what is left to do must come to an end soon.
    pub calm_at: Option<u64>,
    /// The programs.
    pub plan: Plan,
    /// What nodes do to each other's memory beside.
    pub windows: Option<Windows>,
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
    /// An engine gave a frame to a rail that is disabled.
    Trespassed(u32),
    /// A node waits for another that stands still for longer than the stall time-out.
    NotGivenUp(u32, u32),
    /// A node waits for another whose host was lost long ago.
    NotMissed(u32, u32),
    /// A node gives another one up for a reason that is not true.
    Reason(u32, u32, String),
    /// Memory around that of an operation, or of one that was over, was written to.
    Overrun(u32, u32),
    /// A node could be added although no rail leads to it, or is not named as unknown.
    NotUnlinked(u32, u32, String),
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
            Self::Trespassed(node) => write!(f, "node {node} gave a frame to a rail that is disabled"),
            Self::NotGivenUp(node, peer) => {
                write!(f, "node {node} waits for node {peer}, which stands still for longer than the stall time-out")
            }
            Self::NotMissed(node, peer) => {
                write!(f, "node {node} waits for node {peer}, which was lost with its host long ago")
            }
            Self::Reason(node, peer, why) => write!(f, "node {node} lost node {peer} as {why}, which is not true"),
            Self::Overrun(node, number) => {
                write!(f, "node {node}: operation {number} wrote where it must not, or too late")
            }
            Self::NotUnlinked(node, peer, what) => {
                write!(f, "node {node} has no rail to node {peer}, and was told: {what}")
            }
        }
    }
}

impl From<Violation> for Trouble {
    fn from(violation: Violation) -> Self {
        Self::Wrong(violation)
    }
}

/// Runs a job to its end and judges it.
///
/// # Errors
/// The first [`Trouble`].
pub fn run(setting: Setting) -> Result<Report, Trouble> {
    let Setting {
        config,
        makes,
        links,
        faults,
        deaths,
        severed,
        rested,
        toggles,
        stall,
        calm_at,
        plan,
        windows,
        pace,
        mut dice,
    } = setting;
    let nodes = plan.programs.len() as u32;
    let mishaps = !deaths.is_empty() || !severed.is_empty();
    let window = config.requests as usize;
    // Programs that recover need requests when those of the plan are all taken.
    let config = Config { requests: config.requests + if mishaps { SPARE } else { 0 }, ..config };
    let planted = faults.planted;
    let net = Net::new(nodes, makes, faults, dice.fork());
    let mut job = Job {
        nodes: vec![],
        posted: vec![false; plan.receives.len()],
        plan: &plan,
        net,
        dice,
        history: History::default(),
        now: 0,
        config,
        links,
        planted,
        pace,
        scratch: vec![],
        deaths,
        severed,
        toggles,
        off: vec![],
        stall,
        vigils: vec![],
        rested,
        died: BTreeSet::new(),
        gone: BTreeSet::new(),
        apart: BTreeSet::new(),
        calm_at,
        boundaries: vec![],
        calm: false,
        mishaps,
        meetings: vec![],
        recoveries: 0,
        worked_at: 0,
        ended: 0,
        window,
        transitions: vec![],
        windows,
        known: vec![],
    };
    for node in 0..nodes {
        let rails = job.net.rails(node);
        let mut node = job.node(node, rails, 0)?;
        node.desk = Desk::new(job.windows.as_ref().map_or(0, |windows| windows.asks));
        job.nodes.push(node);
    }
    (0..job.nodes.len()).for_each(|node| job.open_windows(node));
    for (one, other) in (0..nodes).flat_map(|one| (0..nodes).map(move |other| (one, other))) {
        job.introduce(one, other)?;
    }
    job.boundaries = job.net.boundaries();
    job.run()?;
    job.judge()
}

pub(super) struct Job<'m> {
    pub nodes: Vec<Node<'m>>,
    /// Receives of the plan that have been posted.
    pub posted: Vec<bool>,
    pub plan: &'m Plan,
    pub net: Net,
    pub dice: Dice,
    pub history: History,
    pub now: u64,
    pub config: Config,
    pub links: Option<Links>,
    pub planted: Option<Planted>,
    pub pace: u64,
    pub scratch: Vec<u8>,
    /// Those that are to come.
    pub deaths: Vec<Death>,
    pub severed: Vec<(u32, u32, u64)>,
    pub toggles: Vec<Toggle>,
    /// Rails that are disabled: whose, which, and until when.
    pub off: Vec<(u32, u32, u64)>,
    pub stall: Option<u64>,
    /// Nodes that stand still.
    pub vigils: Vec<Vigil>,
    pub rested: BTreeSet<(u32, u32)>,
    /// Nodes that have died.
    pub died: BTreeSet<u32>,
    /// Who has lost whom.
    pub gone: BTreeSet<(u32, u32)>,
    /// Those that are cut off, the lower one first: they do not meet again.
    pub apart: BTreeSet<(u32, u32)>,
    pub calm_at: Option<u64>,
    /// When faults that go by the clock begin and end, the next one last.
    pub boundaries: Vec<u64>,
    /// All faults have stopped.
    pub calm: bool,
    /// Requests may end with the failure of a node.
    pub mishaps: bool,
    /// Nodes that are to hear that another is back.
    pub meetings: Vec<Meeting>,
    pub recoveries: u64,
    /// When programs came on for the last time.
    worked_at: u64,
    /// Sends and receives that have ended, but for those that were taken back.
    pub ended: u64,
    /// Sends and receives that a program has under way at most.
    pub window: usize,
    /// What the engines did that are gone.
    pub transitions: Vec<Named>,
    pub windows: Option<Windows>,
    /// All that ever were, by number.
    pub known: Vec<Known>,
}

impl<'m> Job<'m> {
    /// A node in its next life.
    pub fn node(&mut self, me: u32, rails: Vec<super::rail::SimRail>, next: usize) -> Result<Node<'m>, Trouble> {
        let first_sequence = self.config.first_sequence.wrapping_add(me.into());
        let config = Config { seed: self.dice.word(), first_sequence, ..self.config };
        let rails = Set::new(rails, self.links, self.dice.word(), self.plan.programs.len() as u32);
        let mut node = Node::new(me, config, rails, self.plan, next)?;
        node.born = self.now;
        if let Some(stall) = self.stall {
            let stall = match self.planted {
                Some(Planted::Patient) => 0,
                Some(Planted::Hasty) => stall / 64,
                _ => stall,
            };
            node.engine.pml().set_stall_timeout(Duration::from_nanos(stall));
        }
        Ok(node)
    }

    /// Lets one node know another.
    pub fn introduce(&mut self, node: u32, peer: u32) -> Result<(), Trouble> {
        let other = &mut self.nodes[peer as usize].engine;
        let cards: Vec<Vec<u8>> = other.pml().rails().0.iter().map(|rail| rail.card().to_vec()).collect();
        let params = other.params();
        self.nodes[node as usize].met.insert(peer);
        let engine = &mut self.nodes[node as usize].engine;
        let peer = Peer(peer);
        let added = engine.add_peer(peer, &params, |rail, way| way.add_peer(peer, &cards[rail]));
        if self.net.are_unlinked(node, peer.0) {
            return self.cannot_reach(node, peer, added);
        }
        added.map_err(|why| Trouble::Refused(node, why.to_string()))?;
        let life = self.nodes[peer.0 as usize].life;
        self.nodes[node as usize].lives.insert(peer.0, life);
        Ok(())
    }

    /// No rail leads to that node: it was refused, is not known, and nothing is to come of it.
    fn cannot_reach(&mut self, node: u32, peer: Peer, added: Result<(), Unreachable>) -> Result<(), Trouble> {
        let engine = &mut self.nodes[node as usize].engine;
        // SAFETY: no bytes are given.
        let sent = unsafe { engine.pml().isend(peer, 0, 0, Mode::Standard, Span::of(&[])) };
        if added != Err(Unreachable::NoNetwork) || sent != Err(Refusal::NoPeer(peer)) {
            return Err(Trouble::NotUnlinked(node, peer.0, format!("{added:?}, {sent:?}")));
        }
        engine.pml().lose_peer(peer, Lost::Broken);
        self.net.count(|counts| counts.unlinked += 1);
        if self.apart.insert((node.min(peer.0), node.max(peer.0))) {
            self.history.note(Record::Severed(node, peer.0));
        }
        Ok(())
    }

    /// All nodes in turn, in an order by chance, until all are done and all is quiet.
    fn run(&mut self) -> Result<(), Trouble> {
        let (mut idle, mut quiet, mut still, mut tries) = (0u32, 0u32, 0u32, 0u32);
        let (mut work, mut since, mut known_at, mut worked_in) = (0, 0, 0, 0);
        let (mut deaths, mut done, mut moved) = (self.deaths.len(), false, true);
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        let mut round = 0u64;
        loop {
            round += 1;
            if round.is_multiple_of(4) {
                self.dice.shuffle(&mut order);
            }
            let frames = self.net.counts().frames;
            let mut active = self.happen()?;
            self.wake_one_in_vain();
            moved |= active;
            for node in order.iter().copied() {
                if self.is_due(node) {
                    moved = true;
                    active |= self.turn(node)?;
                }
            }
            active |= self.links.is_none() && self.net.counts().frames != frames;
            let before = work;
            if std::mem::take(&mut moved) {
                (work, done) = (self.work(), self.nodes.iter().all(Node::done));
            }
            if done && !active && !self.frames_left() {
                quiet += 1;
                if quiet > 50 {
                    moved = self.mishaps && self.take_all();
                    if !moved {
                        return Ok(());
                    }
                }
            }
            idle = if active { 0 } else { idle + 1 };
            still += 1;
            if work != before {
                (self.worked_at, worked_in) = (self.now, round);
            }
            let mishap = self.next_mishap().is_some() || self.deaths.len() != deaths;
            if work != before || mishap {
                (still, tries, since) = (0, 0, self.now);
            }
            if mishap {
                deaths = self.deaths.len();
                // Who is gone is known to be so by then, where anybody asks.
                known_at = self.now + self.links.map_or(0, |links| links.slack() * 2);
            }
            let waited = match self.links {
                None if let Some(stall) = self.stall => self.now - since > stall * 3,
                None => still % STILL == STILL - 1 || idle % 300 == 299,
                Some(links) => self.now > known_at && self.now - since > links.slack() / 8,
            };
            if waited && (self.mishaps || self.links.is_some()) {
                if self.mishaps {
                    self.recover(tries)?;
                    moved = true;
                }
                (idle, since, tries) = (0, self.now, tries + 1);
            }
            if tries > TRIES {
                return Err(Trouble::Stuck(format!("nothing helps, {}", self.situation())));
            }
            let patience = self.links.map(|links| links.dead_after).max(self.stall.map(|stall| stall * 3));
            let bound = 1 + patience.unwrap_or(0) / 10_000_000; // they take their time
            let late = self.calm_at.is_some_and(|at| self.now > at + LIVENESS * bound);
            let idles = patience.is_none() && idle > IDLE_ROUNDS;
            if idles || self.now > HORIZON * bound || late {
                return Err(Trouble::Stuck(self.situation()));
            }
            if round - worked_in > ROUNDS {
                return Err(Trouble::Stuck(format!("it runs in circles, {}", self.situation())));
            }
            self.pass_time(active, idle, still);
        }
    }

    /// Whether frames are under way that somebody waits for.
    fn frames_left(&mut self) -> bool {
        if self.links.is_some() {
            return !self.nodes.iter_mut().all(|node| !node.alive || node.engine.pml().is_drained());
        }
        if self.mishaps { self.net.next_at().is_some() } else { self.net.under_way() != 0 }
    }

    /// Grows with all that brings programs on, but not with what nodes tell and ask each other meanwhile.
    fn work(&self) -> u64 {
        let of = |node: &Node<'_>| {
            let Counters { eager_sent, rendezvous_sent, fragments_received, expected, unexpected, .. } =
                *node.engine.counters();
            eager_sent + rendezvous_sent + fragments_received + expected + unexpected
        };
        self.ended + self.nodes.iter().map(|node| of(node) + node.next as u64).sum::<u64>()
    }

    /// One node: some steps of its program, progress, and what has come to an end. Whether anything happened.
    fn turn(&mut self, at: usize) -> Result<bool, Trouble> {
        let (mut active, mut waits) = (false, false);
        for _ in 0..self.dice.below(6) {
            if self.dies(at) {
                return Ok(true);
            }
            match self.step(at)? {
                Went::On => active = true,
                Went::Nowhere => break,
                Went::Waits => {
                    waits = true;
                    break;
                }
            }
            if self.now < self.nodes[at].away_until {
                return Ok(true);
            }
        }
        if self.dies(at) {
            return Ok(true);
        }
        active |= self.nodes[at].engine.progress(Instant::from_nanos(self.now)) > 0;
        if self.stall.is_some() || self.net.hosts_answer() {
            self.look_who_is_gone(at as u32)?;
        }
        if self.nodes[at].engine.rails().trespassed() {
            return Err(Trouble::Trespassed(at as u32));
        }
        let excused = |what: &str| self.mishaps && what == "lost";
        let mut faults = faults(self.nodes[at].engine.counters()).into_iter();
        if let Some((what, count)) = faults.find(|(what, count)| *count != 0 && !excused(what)) {
            return Err(Trouble::Miscounted(at as u32, what, count));
        }
        self.look_at_counts(at)?;
        if self.dies(at) {
            return Ok(true);
        }
        active |= self.receive_taken(at)?;
        if self.dies(at) {
            return Ok(true);
        }
        active |= self.complete(at)?;
        active |= self.use_windows(at)?;
        match active {
            true => self.nodes[at].idle_since = self.now,
            false => self.sleep(at, waits),
        }
        Ok(active)
    }

    fn look_at_counts(&mut self, at: usize) -> Result<(), Trouble> {
        let (_, faults) = one_sided_counts(&mut self.nodes[at].engine);
        // Where a window is closed in the middle of a get, the answer that says so may overtake data.
        let excused = |what: &str| what == "answers to nothing" && (self.mishaps || self.has_closed_windows());
        match faults.into_iter().find(|(what, count)| *count != 0 && !excused(what)) {
            Some((what, count)) => Err(Trouble::Miscounted(at as u32, what, count)),
            None => Ok(()),
        }
    }

    /// Looks at all that is left, and judges the whole.
    fn judge(mut self) -> Result<Report, Trouble> {
        let mut report = Report { nodes: self.nodes.len() as u32, took: self.worked_at, ..Report::default() };
        report.transitions = std::mem::take(&mut self.transitions);
        add(&mut report.transitions, &[("recoveries", self.recoveries)]);
        self.nodes.retain(|node| node.alive);
        for node in &mut self.nodes {
            node.look_at_rooms(&mut self.history, &mut self.scratch);
            look_at_windows(node, &mut self.history, self.mishaps)?;
            for comm in node.comms.iter_mut().filter_map(Option::take) {
                node.engine.del_comm(comm);
            }
            let after = node.engine.pml().used();
            for (what, (before, after)) in ["requests", "envelopes", "units"].iter().zip(node.before.iter().zip(after))
            {
                let (node, before, after) = (node.me, u64::from(*before), u64::from(after));
                self.history.note(Record::Level { node, what, before, after });
            }
            add(&mut report.transitions, &transitions(node.engine.counters()));
            add(&mut report.transitions, &one_sided_counts(&mut node.engine).0);
            add(&mut report.transitions, &node.engine.rails().counters());
        }
        for node in std::mem::take(&mut self.nodes) {
            drop(node.engine.finalize());
        }
        report.counts = self.net.counts();
        let after = self.net.registered();
        self.history.note(Record::Level { node: 0, what: "registrations", before: 0, after });
        let after = self.net.prepared();
        self.history.note(Record::Level { node: 0, what: "prepared requests", before: 0, after });
        report.summary = checker::check(&self.history)?;
        Ok(report)
    }

    /// What each node still has to do.
    pub fn situation(&mut self) -> String {
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
                Kind::Send { .. } => format!("send {} {:?}", op.number, self.history.sent(op.number)),
                Kind::Recv { receive, .. } => format!("receive {} {receive:?}", op.number),
            });
            let ops: Vec<_> = ops.collect();
            let used = node.engine.pml().used();
            let counters = node.engine.counters();
            let windows = node.desk.situation();
            format!("\nnode {} next {step:?}\n  has {ops:?}\n  {windows}\n  used {used:?}, {counters:?}", node.me)
        });
        let nodes: Vec<_> = nodes.collect();
        format!("at {} ns, {} frames under way{}", self.now, self.net.under_way(), nodes.concat())
    }
}

/// A count with its name.
pub(super) type Named = (&'static str, u64);

macro_rules! named {
    ($counters:ident: $($name:ident)*) => { [$((stringify!($name), $counters.$name)),*] };
}

/// What an engine did.
pub(super) fn transitions(counters: &Counters) -> [Named; 27] {
    named!(counters: eager_sent rendezvous_sent fragments_sent fragments_received acks_sent finishes_sent credits_sent
        notices_sent asks_sent answers_sent nothings_sent rejects_sent rejects_received expected unexpected out_of_order busy
        exposed single_copies single_copy_failures links_down links_up frames_migrated duplicates offers_sent
        pieces device_failures)
}

/// What it must not have met.
fn faults(counters: &Counters) -> [Named; 5] {
    named!(counters: malformed stale credit_violations unknown_tags lost)
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
