//! Checks a history: MPI order, exact bytes, exactly-once completion, and no leaked resource.
//!
//! The rule of MPI order: of the messages of one sender that match a receive, the receive gets the one that was sent
//! first among those that no earlier receive has taken. So with receives in posting order, each takes the first
//! remaining message of the sender that it reports. A receive from any source may choose the sender.
//!
//! Nodes may die and restart. A request may fail only because of a node that died or was disconnected for too long.
//! Messages from or to such a node may be lost, but a receive never gets a message in place of a lost earlier one: of the
//! messages from one incarnation to another, those that arrive are the first ones, except for messages that failed
//! receives may have taken. Between all other nodes no message is lost or duplicated, and no request fails.

use std::collections::HashMap;

use super::lives::{Incarnations, Posted, Stream};
use super::matching::Matching;
use super::messages::{Message, Outcome, Receive, SendFailure};
use super::one_sided::RmaOutcome;
use super::record::{History, Record};
use super::rma_checker::RmaChecker;
use super::violation::{Summary, Violation};

/// Checks the complete history of a job.
///
/// # Errors
/// The first violation that was found.
pub fn check(history: &History) -> Result<Summary, Violation> {
    let mut checker = Checker::default();
    for (at, record) in history.records.iter().enumerate() {
        checker.read(at, record)?;
    }
    checker.finish()
}

/// What the records so far say.
#[derive(Default)]
struct Checker {
    sends: Vec<Posted<Message>>,
    receives: Vec<Posted<Receive>>,
    /// By receive.
    outcomes: Vec<Option<Outcome>>,
    /// By receive: the digest of its buffer, and whether the bytes around the message are intact.
    buffers: HashMap<u32, (u64, bool)>,
    incarnations: Incarnations,
    /// Number of operations that failed with reason.
    failed: u64,
    rma: RmaChecker,
}

impl Checker {
    /// Reads record number `at`.
    fn read(&mut self, at: usize, record: &Record) -> Result<(), Violation> {
        match record {
            Record::Send(message) => {
                let Message { comm, from, to, .. } = *message;
                let stream = Stream { comm, from: self.incarnations.of(from), to: self.incarnations.known(from, to) };
                self.sends.push(posted(*message, at, stream));
            }
            Record::Recv(receive) => {
                self.receives.push(posted(*receive, at, Stream::default()));
                self.outcomes.push(None);
            }
            Record::Sent(send, error) => self.sent(at, *send, error.as_ref())?,
            Record::Received(receive, outcome) => self.received(at, *receive, *outcome)?,
            Record::Died(node) => self.died(at, *node),
            Record::Disconnected(one, other) => {
                self.incarnations.disconnected.insert((*one.min(other), *one.max(other)));
            }
            Record::Refused { node, peer } => {
                if !self.incarnations.failed(*node, *peer) {
                    return Err(Violation::FalseRefusal(*node, *peer));
                }
            }
            Record::Introduced { node, peer } => {
                self.incarnations.known.insert((*node, *peer), self.incarnations.of(*peer).1);
            }
            Record::Window(window) => self.rma.open(*window),
            Record::WindowClosed(window) => self.rma.close(*window),
            Record::Memory(window, memory) => self.rma.check_memory(*window, memory)?,
            Record::RmaBegun(op) => self.rma.begin(*op),
            Record::RmaEnded(number, outcome) => self.rma_ended(*number, *outcome)?,
            Record::Buffer(receive, digest, intact) => {
                self.buffers.insert(*receive, (*digest, *intact));
            }
            Record::Level { node, what, before, after } => {
                if before != after {
                    return Err(Violation::Leaked(*node, what, *before, *after));
                }
            }
        }
        Ok(())
    }

    fn sent(&mut self, at: usize, send: u32, error: Option<&SendFailure>) -> Result<(), Violation> {
        let posted = end(&mut self.sends, "send", send, at)?;
        posted.failed = error.is_some();
        let message = posted.what;
        match error {
            None => {}
            Some(SendFailure::Peer(node)) if *node == message.to && self.incarnations.failed(message.from, *node) => {
                self.failed += 1;
            }
            Some(error) => return Err(Violation::SendFailed(send, error.clone())),
        }
        Ok(())
    }

    fn received(&mut self, at: usize, receive: u32, outcome: Outcome) -> Result<(), Violation> {
        let posted = end(&mut self.receives, "receive", receive, at)?;
        let Receive { at: node, comm, source, .. } = posted.what;
        match outcome {
            Outcome::Received { source, .. } => {
                let from = self.incarnations.known(node, source);
                posted.stream = Stream { comm, from, to: self.incarnations.of(node) };
            }
            Outcome::PeerFailed(peer)
                if source.is_some_and(|one| one != peer) || !self.incarnations.failed(node, peer) =>
            {
                return Err(Violation::FalseFailure(receive, posted.what, peer));
            }
            Outcome::PeerFailed(_) => self.failed += 1,
            Outcome::Cancelled => {}
        }
        self.outcomes[receive as usize] = Some(outcome);
        Ok(())
    }

    /// The operations that a node has in progress when it dies end without an outcome.
    fn died(&mut self, at: usize, node: u32) {
        self.rma.node_died(node);
        let life = self.incarnations.of(node);
        self.incarnations.died.insert(life);
        self.incarnations.now.insert(node, life.1 + 1);
        self.incarnations.known.retain(|(by, _), _| *by != node);
        let open = self.sends.iter_mut().filter(|send| send.what.from == node && send.end.is_none());
        open.for_each(|send| (send.end, send.void) = (Some(at), true));
        let open = self.receives.iter_mut().filter(|receive| receive.what.at == node && receive.end.is_none());
        open.for_each(|receive| (receive.end, receive.void) = (Some(at), true));
    }

    fn rma_ended(&mut self, number: u32, outcome: RmaOutcome) -> Result<(), Violation> {
        let Some([from, to]) = self.rma.target(number) else {
            return Err(Violation::NotCompleted("operation", number));
        };
        if outcome == RmaOutcome::Lost {
            if !self.incarnations.failed(from, to) {
                return Err(Violation::OneSided(self.rma.false_loss(number)));
            }
            self.failed += 1;
        }
        self.rma.end(number, outcome)?;
        Ok(())
    }

    /// Checks what only the complete history shows.
    fn finish(self) -> Result<Summary, Violation> {
        all_ended(&self.sends, "send")?;
        all_ended(&self.receives, "receive")?;
        let matching = Matching::new(&self.sends, &self.incarnations);
        let mut summary = matching.check(&self.receives, &self.outcomes, &self.buffers)?;
        self.rma.check()?;
        [summary.one_sided, summary.denied] = self.rma.counts;
        summary.failed = self.failed;
        Ok(summary)
    }
}

fn posted<T>(what: T, at: usize, stream: Stream) -> Posted<T> {
    Posted { what, at, end: None, void: false, failed: false, stream }
}

fn end<'p, T>(
    posted: &'p mut [Posted<T>],
    what: &'static str,
    number: u32,
    at: usize,
) -> Result<&'p mut Posted<T>, Violation> {
    let entry = posted.get_mut(number as usize).ok_or(Violation::NotCompleted(what, number))?;
    match entry.end.replace(at) {
        None => Ok(entry),
        Some(_) => Err(Violation::CompletedTwice(what, number)),
    }
}

fn all_ended<T>(posted: &[Posted<T>], what: &'static str) -> Result<(), Violation> {
    match posted.iter().position(|entry| entry.end.is_none()) {
        None => Ok(()),
        Some(number) => Err(Violation::NotCompleted(what, number as u32)),
    }
}
