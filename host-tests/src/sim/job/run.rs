//! Runs a job to its end.

use std::collections::{BTreeMap, BTreeSet};

use towline_core::pml::{Config, Counters};
use towline_core::time::Instant;

use super::counts::{add, faults, transitions};
use super::node::Node;
use super::report::{JobError, Report};
use super::setting::Setting;
use super::standstill::Standstill;
use super::state::Job;
use super::steps::Progress;
use super::window_state::NodeWindows;
use super::windows::{check_windows, one_sided_counts};
use crate::sim::history::{History, Record, check};
use crate::sim::network::Net;

/// Number of rounds without any event, with growing steps of time, after which a job is stuck.
const MAX_IDLE_ROUNDS: u32 = 3000;
/// Number of rounds without progress of a program after which a busy job counts as endless.
const MAX_ROUNDS: u64 = 20_000_000;

/// Number of rounds without progress after which programs recover from failures.
const QUIET_ROUNDS: u32 = 3000;

/// Additional requests for recovery.
const RECOVERY_REQUESTS: u32 = 12;

/// Number of recoveries without progress after which a job is stuck.
const MAX_RECOVERIES: u32 = 60;

/// Virtual nanoseconds after which a job is too slow.
const TIME_LIMIT: u64 = 20_000_000_000;

/// Virtual nanoseconds within which a job must complete after all faults have ended.
pub const LIVENESS: u64 = 5_000_000_000;

/// Runs a job to its end and checks its history.
///
/// # Errors
/// The first [`JobError`].
pub fn run(setting: Setting) -> Result<Report, JobError> {
    let Setting {
        config,
        rail_params,
        links,
        faults,
        deaths,
        disconnected,
        stalled_pairs,
        toggles,
        stall_timeout,
        faults_end_at,
        cancels_sends,
        plan,
        windows,
        pace,
        mut random,
    } = setting;
    let nodes = plan.programs.len() as u32;
    let failures_expected = !deaths.is_empty() || !disconnected.is_empty();
    let window = config.requests as usize;
    // Programs that recover need requests when those of the plan are all in use.
    let config = Config { requests: config.requests + if failures_expected { RECOVERY_REQUESTS } else { 0 }, ..config };
    let planted = faults.planted;
    let net = Net::new(nodes, rail_params, faults, random.fork());
    let mut job = Job {
        nodes: vec![],
        posted: vec![false; plan.receives.len()],
        plan: &plan,
        net,
        random,
        history: History::default(),
        now: 0,
        config,
        links,
        planted,
        pace,
        scratch: vec![],
        deaths,
        disconnected,
        toggles,
        disabled_rails: vec![],
        stall_timeout,
        cancels_sends,
        latest_sends: BTreeMap::new(),
        silent_nodes: vec![],
        stalled_pairs,
        died: BTreeSet::new(),
        lost_peers: BTreeSet::new(),
        separated: BTreeSet::new(),
        faults_end_at,
        fault_boundaries: vec![],
        faults_ended: false,
        failures_expected,
        introductions: vec![],
        recoveries: 0,
        last_work_at: 0,
        ended: 0,
        window,
        transitions: vec![],
        windows,
        known: vec![],
    };
    for node in 0..nodes {
        let rails = job.net.rails(node);
        let mut node = job.node(node, rails, 0)?;
        node.node_windows = NodeWindows::new(job.windows.as_ref().map_or(0, |windows| windows.operations));
        job.nodes.push(node);
    }
    (0..job.nodes.len()).for_each(|node| job.open_windows(node));
    for (one, other) in (0..nodes).flat_map(|one| (0..nodes).map(move |other| (one, other))) {
        job.introduce(one, other)?;
    }
    job.fault_boundaries = job.net.fault_boundaries();
    job.run()?;
    job.check()
}

impl Job<'_> {
    /// Runs all nodes in turn, in random order, until all are done and nothing is in flight.
    fn run(&mut self) -> Result<(), JobError> {
        let mut standstill = Standstill::default();
        let (mut work, mut deaths, mut done, mut moved) = (0, self.deaths.len(), false, true);
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        loop {
            if standstill.begin_round().is_multiple_of(4) {
                self.random.shuffle(&mut order);
            }
            let (active, moved_now) = self.round(&order)?;
            let before = work;
            if std::mem::take(&mut moved) || moved_now {
                (work, done) = (self.work(), self.nodes.iter().all(Node::done));
            }
            if done && !active && !self.frames_left() && standstill.count_done() {
                moved = self.failures_expected && self.receive_everything();
                if !moved {
                    return Ok(());
                }
            }
            standstill.count(active);
            if work != before {
                self.last_work_at = self.now;
                standstill.progressed(self.now);
            }
            if self.next_event_at().is_some() || self.deaths.len() != deaths {
                deaths = self.deaths.len();
                standstill.disturbed(self.now, self.links.map_or(0, |links| links.slack() * 2));
            }
            if self.must_recover(&standstill) {
                if self.failures_expected {
                    self.recover(standstill.recoveries)?;
                    moved = true;
                }
                standstill.recovered(self.now);
            }
            self.check_progress(&standstill)?;
            self.advance_clock(active, &standstill);
        }
    }

    /// Applies the events that are due, and gives each node that is due a turn. Returns whether anything happened, and
    /// whether there was an event or a turn.
    fn round(&mut self, order: &[usize]) -> Result<(bool, bool), JobError> {
        let frames = self.net.counts().frames;
        let mut active = self.apply_due_events()?;
        self.wake_one_without_cause();
        let mut moved = active;
        for node in order.iter().copied() {
            if self.is_due(node) {
                moved = true;
                active |= self.turn(node)?;
            }
        }
        active |= self.links.is_none() && self.net.counts().frames != frames;
        Ok((active, moved))
    }

    /// Whether programs have waited for so long that they must recover.
    fn must_recover(&self, standstill: &Standstill) -> bool {
        let lasted = standstill.lasted(self.now);
        let waited = match self.links {
            None if let Some(stall) = self.stall_timeout => lasted > stall * 3,
            None => standstill.still_rounds % QUIET_ROUNDS == QUIET_ROUNDS - 1 || standstill.idle_rounds % 300 == 299,
            Some(links) => standstill.losses_noticed(self.now) && lasted > links.slack() / 8,
        };
        waited && (self.failures_expected || self.links.is_some())
    }

    /// Fails if the job is stuck or too slow.
    fn check_progress(&mut self, standstill: &Standstill) -> Result<(), JobError> {
        if standstill.recoveries > MAX_RECOVERIES {
            return Err(JobError::Stuck(format!("recovery has no effect, {}", self.situation())));
        }
        let longest_timeout = self.links.map(|links| links.dead_after).max(self.stall_timeout.map(|stall| stall * 3));
        let bound = 1 + longest_timeout.unwrap_or(0) / 10_000_000; // these time-outs need time
        let late = self.faults_end_at.is_some_and(|at| self.now > at + LIVENESS * bound);
        let is_idle = longest_timeout.is_none() && standstill.idle_rounds > MAX_IDLE_ROUNDS;
        if is_idle || self.now > TIME_LIMIT * bound || late {
            return Err(JobError::Stuck(self.situation()));
        }
        if standstill.rounds_without_progress() > MAX_ROUNDS {
            return Err(JobError::Stuck(format!("it makes no progress, {}", self.situation())));
        }
        Ok(())
    }

    /// Whether frames are in flight that a node waits for.
    fn frames_left(&mut self) -> bool {
        if self.links.is_some() {
            return !self.nodes.iter_mut().all(|node| !node.alive || node.engine.pml().is_drained());
        }
        if self.failures_expected { self.net.next_at().is_some() } else { self.net.unreleased_frames() != 0 }
    }

    /// A number that grows with the progress of programs, but not with control traffic.
    fn work(&self) -> u64 {
        let of = |node: &Node<'_>| {
            let Counters { eager_sent, rendezvous_sent, fragments_received, expected, unexpected, .. } =
                *node.engine.counters();
            eager_sent + rendezvous_sent + fragments_received + expected + unexpected
        };
        self.ended + self.nodes.iter().map(|node| of(node) + node.next as u64).sum::<u64>()
    }

    /// Gives one node a turn: some steps of its program, progress, and completions. Returns whether anything happened.
    fn turn(&mut self, at: usize) -> Result<bool, JobError> {
        let (mut active, mut waits) = (false, false);
        for _ in 0..self.random.below(6) {
            if self.step_may_kill(at) {
                return Ok(true);
            }
            match self.step(at)? {
                Progress::Advanced => active = true,
                Progress::Retry => break,
                Progress::Blocked => {
                    waits = true;
                    break;
                }
            }
            if self.now < self.nodes[at].computes_until {
                return Ok(true);
            }
        }
        if self.step_may_kill(at) {
            return Ok(true);
        }
        active |= self.nodes[at].engine.progress(Instant::from_nanos(self.now)) > 0;
        if self.stall_timeout.is_some() || self.net.hosts_answer() {
            self.check_losses(at as u32)?;
        }
        if self.nodes[at].engine.rails().was_used_while_disabled() {
            return Err(JobError::DisabledRailUsed(at as u32));
        }
        let excused = |what: &str| self.failures_expected && what == "lost";
        let mut faults = faults(self.nodes[at].engine.counters()).into_iter();
        if let Some((what, count)) = faults.find(|(what, count)| *count != 0 && !excused(what)) {
            return Err(JobError::UnexpectedCount(at as u32, what, count));
        }
        self.check_one_sided_counts(at)?;
        if self.step_may_kill(at) {
            return Ok(true);
        }
        active |= self.receive_taken(at)?;
        if self.step_may_kill(at) {
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

    fn check_one_sided_counts(&mut self, at: usize) -> Result<(), JobError> {
        let (_, faults) = one_sided_counts(&mut self.nodes[at].engine);
        // If a window is closed in the middle of a get, the denial may arrive before data.
        let excused =
            |what: &str| what == "answers without a request" && (self.failures_expected || self.has_closed_windows());
        match faults.into_iter().find(|(what, count)| *count != 0 && !excused(what)) {
            Some((what, count)) => Err(JobError::UnexpectedCount(at as u32, what, count)),
            None => Ok(()),
        }
    }

    /// Collects everything that remains, and checks the history.
    fn check(mut self) -> Result<Report, JobError> {
        let mut report = Report { nodes: self.nodes.len() as u32, took: self.last_work_at, ..Report::default() };
        report.transitions = std::mem::take(&mut self.transitions);
        add(&mut report.transitions, &[("recoveries", self.recoveries)]);
        self.nodes.retain(|node| node.alive);
        for node in &mut self.nodes {
            node.record_buffers(&mut self.history, &mut self.scratch);
            check_windows(node, &mut self.history, self.failures_expected)?;
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
        report.summary = check(&self.history)?;
        Ok(report)
    }
}
