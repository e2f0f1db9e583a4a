//! Recovery of programs from failures.
//!
//! A program that loses a peer cannot go on as planned: messages of that peer never arrive, and receives from any
//! source that were meant for them get no message or another one. So when no program makes progress any more, nodes
//! *recover*, as a fault-tolerant application would: they receive all messages that have arrived, regardless of the plan,
//! then cancel receives, and skip probes. The checker still requires every message between live nodes.

use super::node::{OpKind, UNPLANNED};
use super::report::JobError;
use super::state::Job;
use super::steps::Progress;
use crate::sim::history::{RESERVED, Receive};
use crate::sim::plan::Step;

impl Job<'_> {
    /// Recovers when no program makes progress any more. Each call takes one step; `tries` counts the calls without effect.
    pub fn recover(&mut self, tries: u32) -> Result<(), JobError> {
        self.recoveries += 1;
        for node in self.nodes.iter_mut().filter(|node| node.alive) {
            for comm in node.comms.iter().flatten() {
                node.engine.acknowledge(*comm); // otherwise receives from any source would fail at once
            }
        }
        if self.receive_everything() {
            return Ok(());
        }
        for at in 0..self.nodes.len() {
            if !self.nodes[at].alive {
                continue;
            }
            match tries % 4 {
                // The wait grows while no time-out is running, since requested messages may take many rounds.
                0 => self.post_wildcards(at, if self.links.is_some() { 100 } else { 100 << (tries / 8).min(8) })?,
                1 => self.cancel_receives(at, if tries < 4 { 1 } else { usize::MAX }),
                2 => self.skip_probe(at),
                _ => {}
            }
        }
        Ok(())
    }

    /// Receives all messages that are there. Returns whether there was one.
    pub fn receive_everything(&mut self) -> bool {
        self.wake_all();
        let mut any = false;
        for at in (0..self.nodes.len()).filter(|at| self.nodes[*at].alive).collect::<Vec<_>>() {
            for receive in self.wildcard_receives(at) {
                while self.matched_probe_any(at, receive, UNPLANNED) == Progress::Advanced {
                    any = true;
                }
            }
        }
        any
    }

    /// Receives that match any message to a node.
    pub fn wildcard_receives(&self, at: usize) -> Vec<Receive> {
        let buffer = self.plan.messages.iter().map(|message| message.len).max().unwrap_or(0);
        let tags = [None, Some(RESERVED), Some(u32::MAX - 1)];
        let comms = (0..self.plan.permanent).flat_map(|comm| tags.map(|tag| (comm, tag)));
        comms.map(|(comm, tag)| Receive { at: at as u32, comm, source: None, tag, buffer }).collect()
    }

    /// Posts receives for some time, for messages that are held back by their senders.
    pub fn post_wildcards(&mut self, at: usize, calls: u32) -> Result<(), JobError> {
        if self.nodes[at].unplanned_receives() > 0 {
            return Ok(());
        }
        for receive in self.wildcard_receives(at) {
            self.recv(at, receive, UNPLANNED, Some(calls), None)?;
        }
        Ok(())
    }

    /// Cancels the receives that were posted last.
    pub fn cancel_receives(&mut self, at: usize, most: usize) {
        let planned = self.nodes[at].ops.iter_mut().rev().filter_map(|op| match &mut op.kind {
            OpKind::Recv { planned, cancel, .. } if *planned != UNPLANNED => Some((planned, cancel)),
            _ => None,
        });
        planned.take(most).for_each(|(planned, cancel)| (*planned, *cancel) = (UNPLANNED, Some(0)));
    }

    /// Skips a probe.
    pub fn skip_probe(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let probes = matches!(node.program.get(node.next), Some(Step::Probe(_) | Step::MatchedProbe(_)));
        node.next += usize::from(probes);
    }
}
