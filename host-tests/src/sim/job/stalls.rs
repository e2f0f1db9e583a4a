//! Nodes that stand still, as one that is stopped or computes, or that are lost with their host: who has to give them up, who must
//! not, and with what reason.
//!
//! Where there is no stall time-out, nobody may, as long as their hosts answer. With one, who waits for a node that stands
//! still for several times as long has given it up by then, and says why; one that does so for a fraction is kept.

use towline_core::rail::{Lost, Peer};

use super::node::{Kind, Node};
use super::report::JobError;
use super::silent_node::Vigil;
use super::state::Job;

impl Job<'_> {
    /// Looks who begins to stand still, and who goes on.
    pub fn see_who_rests(&mut self) {
        for node in 0..self.nodes.len() as u32 {
            let until = self.net.rests_until(node).filter(|_| self.nodes[node as usize].alive);
            self.nodes[node as usize].rests_until = until.unwrap_or(0);
            let known = self.vigils.iter().any(|vigil| vigil.node == node && !vigil.lost);
            match until {
                Some(until) if !known => self.begin_vigil(node, until),
                None => self.vigils.retain(|vigil| vigil.node != node || vigil.lost),
                Some(_) => {}
            }
        }
    }

    /// Looks whether those that wait for who stands still do so for no longer than they should.
    pub fn keep_vigil(&mut self) -> Result<(), JobError> {
        for at in 0..self.vigils.len() {
            if self.vigils[at].due.take_if(|due| *due <= self.now).is_some() {
                self.look_at_waiting(at)?;
            }
        }
        self.vigils.retain(|vigil| !vigil.lost || vigil.due.is_some());
        Ok(())
    }

    /// A node is lost with its host, which nobody tells: who has something to send to it finds out, as soon as links find out that
    /// one is silent. (Who only receives may never have met it.)
    pub fn mourn(&mut self, node: u32) {
        let Some(links) = self.links else { return };
        let mut waiting = self.who_waits(node);
        waiting.iter_mut().for_each(|(_, ops)| ops.retain(|(send, _)| *send));
        let (met, unmet) =
            waiting.into_iter().partition(|(other, _)| self.nodes[*other as usize].engine.rails().have_met(Peer(node)));
        // One that a link has not met yet is greeted by it for the time of one greeting.
        let usual = links.dead_after * 2;
        let greeting = links.dead_after * links.greetings;
        for (waiting, within) in [(met, usual), (unmet, links.slack().max(links.dead_after + greeting + greeting / 16))]
        {
            let due = Some(self.now + within + links.dead_after / 8);
            self.vigils.push(Vigil { node, lost: true, since: self.now, due, waiting });
        }
    }

    /// Who waits for a node, and with what.
    pub fn who_waits(&self, node: u32) -> Vec<(u32, Vec<(bool, u32)>)> {
        let waiting = |(at, other): (u32, &Node<'_>)| (at != node && other.alive).then(|| (at, waits(other, node)));
        (0..).zip(&self.nodes).filter_map(waiting).filter(|waiting| !waiting.1.is_empty()).collect()
    }

    pub fn begin_vigil(&mut self, node: u32, until: u64) {
        self.net.trace(node, || format!("stands still until {until}"));
        self.net.count(|counts| counts.rested += 1);
        let waiting = self.who_waits(node);
        let due = match self.stall {
            Some(stall) if self.is_long(self.now, until) => self.now + Vigil::patience(stall),
            // Still within the rest, so that it is looked at before anybody goes on.
            _ => until - 1,
        };
        self.vigils.push(Vigil { node, lost: false, since: self.now, due: Some(due), waiting });
    }

    /// Whether a rest is one for which a node is to be given up.
    pub fn is_long(&self, since: u64, until: u64) -> bool {
        self.stall.is_some_and(|stall| until - since > Vigil::patience(stall))
    }

    pub fn look_at_waiting(&mut self, at: usize) -> Result<(), JobError> {
        let Vigil { node, since, lost: gone, .. } = self.vigils[at];
        let long = !gone && self.net.rests_until(node).is_some_and(|until| self.is_long(since, until));
        let due = since + Vigil::patience(self.stall.unwrap_or(0));
        if long && self.now < due {
            self.vigils[at].due = Some(due); // another rest has begun meanwhile
            return Ok(());
        }
        for (other, ops) in std::mem::take(&mut self.vigils[at].waiting) {
            let waits = waits(&self.nodes[other as usize], node);
            if !waits.iter().any(|op| ops.contains(op)) || !self.stood_by(other, since) {
                continue;
            }
            if gone {
                return Err(JobError::NotMissed(other, node)); // whoever is there now, it is another life
            }
            let lost = self.nodes[other as usize].engine.pml().why_lost(Peer(node)).is_some();
            if long && !lost {
                return Err(JobError::NotGivenUp(other, node));
            }
            let links = self.links.is_some_and(|links| links.dead_after < self.now - since);
            self.net.count(|counts| {
                counts.outlasted += u64::from(!lost && links);
                counts.spared += u64::from(!lost && self.stall.is_some());
            });
        }
        Ok(())
    }

    /// Whether a node has lived and gone on all the time.
    pub fn stood_by(&self, node: u32, since: u64) -> bool {
        let other = &self.nodes[node as usize];
        other.alive && other.born <= since && !self.net.rested_since(node, since)
    }

    /// Looks whether a node has lost others since it was asked last, and for the true reason.
    pub fn look_who_is_gone(&mut self, at: u32) -> Result<(), JobError> {
        for peer in 0..self.nodes.len() as u32 {
            let Some(why) = self.nodes[at as usize].engine.pml().why_lost(Peer(peer)) else { continue };
            if !self.gone.insert((at, peer)) {
                continue;
            }
            self.net.set_gone(at, peer, true);
            let Some(stall) = self.stall else { continue };
            let since = self.vigils.iter().find(|vigil| vigil.node == peer && !vigil.lost).map(|vigil| vigil.since);
            let wrong = match (why, since) {
                (Lost::Stalled, Some(since)) => {
                    self.net.count(|counts| counts.stalled_out += 1);
                    self.now - since < stall / 2 && self.is_apart_by_rest(peer, at)
                }
                // Or who was never met does not answer a greeting.
                (Lost::TimedOut, Some(since)) if self.now - since >= stall / 2 => false,
                // While it stands still there is no other reason.
                (_, Some(since)) => self.is_apart_by_rest(peer, at) && self.stood_by(at, since),
                (_, None) => false,
            };
            if wrong {
                return Err(JobError::Reason(at, peer, format!("{why:?}")));
            }
        }
        Ok(())
    }

    /// Whether nothing but a node's rest has come between it and another.
    pub fn is_apart_by_rest(&self, node: u32, other: u32) -> bool {
        self.rested.contains(&(node, other)) && !self.died.contains(&node) && !self.died.contains(&other)
    }
}

/// The sends and receives with which a node waits for another, by number; `true` for a send.
fn waits(node: &Node<'_>, of: u32) -> Vec<(bool, u32)> {
    let ops = node.ops.iter().filter_map(|op| match op.kind {
        Kind::Send { to } => (to == of).then_some((true, op.number)),
        Kind::Recv { receive, cancel: None, .. } => (receive.source == Some(of)).then_some((false, op.number)),
        Kind::Recv { .. } => None,
    });
    ops.collect()
}
