//! What befalls nodes, and what the others make of it: deaths, returns, and programs that go on after a failure.
//!
//! A program that loses a peer cannot go on as planned: messages of that peer never come, and receives from anyone that were
//! meant for them stay without one, or get another's. So when nothing moves any more, nodes *recover*, as a fault-tolerant
//! application would: they take in all messages that are there, whatever the plan says, then take back receives, and
//! leave out probes. Of what living nodes sent each other, the checker wants every message all the same.

use super::node::{OpKind, UNPLANNED};
use super::report::JobError;
use super::state::Job;
use super::steps::Progress;
use crate::sim::history::{RESERVED, Receive};
use crate::sim::plan::Step;

impl Job<'_> {
    /// What programs do when nothing moves any more; one thing after the other where the first does not help.
    pub fn recover(&mut self, tries: u32) -> Result<(), JobError> {
        self.recoveries += 1;
        for node in self.nodes.iter_mut().filter(|node| node.alive) {
            for comm in node.comms.iter().flatten() {
                node.engine.acknowledge(*comm); // or receives from anyone would end at once
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
                // Ever longer where nobody else waits: what is asked for may take many rounds to come.
                0 => self.post_wildcards(at, if self.links.is_some() { 100 } else { 100 << (tries / 8).min(8) })?,
                1 => self.cancel_receives(at, if tries < 4 { 1 } else { usize::MAX }),
                2 => self.skip_probe(at),
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes all messages that are there. Whether there was any.
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

    /// Receives for whatever may come to a node.
    pub fn wildcard_receives(&self, at: usize) -> Vec<Receive> {
        let room = self.plan.messages.iter().map(|message| message.len).max().unwrap_or(0);
        let tags = [None, Some(RESERVED), Some(u32::MAX - 1)];
        let comms = (0..self.plan.permanent).flat_map(|comm| tags.map(|tag| (comm, tag)));
        comms.map(|(comm, tag)| Receive { at: at as u32, comm, source: None, tag, room }).collect()
    }

    /// Posts receives for a while, for what is held back.
    pub fn post_wildcards(&mut self, at: usize, calls: u32) -> Result<(), JobError> {
        if self.nodes[at].unplanned_receives() > 0 {
            return Ok(());
        }
        for receive in self.wildcard_receives(at) {
            self.recv(at, receive, UNPLANNED, Some(calls), None)?;
        }
        Ok(())
    }

    /// Takes back receives, those that were posted last.
    pub fn cancel_receives(&mut self, at: usize, most: usize) {
        let planned = self.nodes[at].ops.iter_mut().rev().filter_map(|op| match &mut op.kind {
            OpKind::Recv { planned, cancel, .. } if *planned != UNPLANNED => Some((planned, cancel)),
            _ => None,
        });
        planned.take(most).for_each(|(planned, cancel)| (*planned, *cancel) = (UNPLANNED, Some(0)));
    }

    /// Gives up a probe.
    pub fn skip_probe(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let probes = matches!(node.program.get(node.next), Some(Step::Probe(_) | Step::MatchedProbe(_)));
        node.next += usize::from(probes);
    }
}
