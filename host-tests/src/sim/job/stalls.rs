//! Checks stalled nodes and nodes that are lost with their host: which nodes must give them up, which must not, and for
//! what reason.
//!
//! Without a stall time-out no node may give up a stalled node whose host answers. With a time-out, a node that waits
//! for one that is stalled for several times as long must have given it up by then, with the right reason. A node that
//! is stalled for a fraction of the time-out is kept.

use towline_core::rail::{Lost, Peer};

use super::node::{Node, OpKind};
use super::report::JobError;
use super::silent_node::SilentNode;
use super::state::Job;

impl Job<'_> {
    /// Updates which nodes are stalled.
    pub fn update_stalled_nodes(&mut self) {
        for node in 0..self.nodes.len() as u32 {
            let until = self.net.stalled_until(node).filter(|_| self.nodes[node as usize].alive);
            self.nodes[node as usize].stalled_until = until.unwrap_or(0);
            let known = self.silent_nodes.iter().any(|silent| silent.node == node && !silent.lost);
            match until {
                Some(until) if !known => self.watch_stalled(node, until),
                None => self.silent_nodes.retain(|silent| silent.node != node || silent.lost),
                Some(_) => {}
            }
        }
    }

    /// Checks that no node waits too long for a stalled or lost one.
    pub fn check_silent_nodes(&mut self) -> Result<(), JobError> {
        for at in 0..self.silent_nodes.len() {
            if self.silent_nodes[at].due.take_if(|due| *due <= self.now).is_some() {
                self.check_waiters(at)?;
            }
        }
        self.silent_nodes.retain(|silent| !silent.lost || silent.due.is_some());
        Ok(())
    }

    /// Watches a node that was lost with its host. Nothing reports such a loss. A node that sends to the lost node notices
    /// it as soon as links detect the silence. (A node that only receives may never have connected.)
    pub fn watch_lost_host(&mut self, node: u32) {
        let Some(links) = self.links else { return };
        let mut waiting = self.waiters(node);
        waiting.iter_mut().for_each(|(_, ops)| ops.retain(|(send, _)| *send));
        let (met, unmet) =
            waiting.into_iter().partition(|(other, _)| self.nodes[*other as usize].engine.rails().have_met(Peer(node)));
        // A link that is not connected yet sends hellos for the time of one handshake.
        let silence = links.dead_after * 2;
        let hello = links.dead_after * links.hello_attempts;
        for (waiting, within) in [(met, silence), (unmet, links.slack().max(links.dead_after + hello + hello / 16))] {
            let due = Some(self.now + within + links.dead_after / 8);
            self.silent_nodes.push(SilentNode { node, lost: true, since: self.now, due, waiting });
        }
    }

    /// The nodes that wait for a node, and their operations.
    pub fn waiters(&self, node: u32) -> Vec<(u32, Vec<(bool, u32)>)> {
        let waiting =
            |(at, other): (u32, &Node<'_>)| (at != node && other.alive).then(|| (at, waiting_ops(other, node)));
        (0..).zip(&self.nodes).filter_map(waiting).filter(|waiting| !waiting.1.is_empty()).collect()
    }

    pub fn watch_stalled(&mut self, node: u32, until: u64) {
        self.net.trace(node, || format!("is stalled until {until}"));
        self.net.count(|counts| counts.nodes_stalled += 1);
        let waiting = self.waiters(node);
        let due = match self.stall_timeout {
            Some(stall) if self.is_long(self.now, until) => self.now + SilentNode::time_limit(stall),
            // Still within the stall, so that it is checked before any node goes on.
            _ => until - 1,
        };
        self.silent_nodes.push(SilentNode { node, lost: false, since: self.now, due: Some(due), waiting });
    }

    /// Whether a stall is long enough for the node to be given up.
    pub fn is_long(&self, since: u64, until: u64) -> bool {
        self.stall_timeout.is_some_and(|stall| until - since > SilentNode::time_limit(stall))
    }

    pub fn check_waiters(&mut self, at: usize) -> Result<(), JobError> {
        let SilentNode { node, since, lost: gone, .. } = self.silent_nodes[at];
        let long = !gone && self.net.stalled_until(node).is_some_and(|until| self.is_long(since, until));
        let due = since + SilentNode::time_limit(self.stall_timeout.unwrap_or(0));
        if long && self.now < due {
            self.silent_nodes[at].due = Some(due); // another stall has begun meanwhile
            return Ok(());
        }
        for (other, ops) in std::mem::take(&mut self.silent_nodes[at].waiting) {
            let waits = waiting_ops(&self.nodes[other as usize], node);
            if !waits.iter().any(|op| ops.contains(op)) || !self.ran_since(other, since) {
                continue;
            }
            if gone {
                // A node with this number that is alive now is another incarnation.
                return Err(JobError::LossNotNoticed(other, node));
            }
            let lost = self.nodes[other as usize].engine.pml().why_lost(Peer(node)).is_some();
            if long && !lost {
                return Err(JobError::NotGivenUp(other, node));
            }
            let links = self.links.is_some_and(|links| links.dead_after < self.now - since);
            self.net.count(|counts| {
                counts.kept_by_host += u64::from(!lost && links);
                counts.kept_below_timeout += u64::from(!lost && self.stall_timeout.is_some());
            });
        }
        Ok(())
    }

    /// Whether a node has been running since that time, without death or stall.
    pub fn ran_since(&self, node: u32, since: u64) -> bool {
        let other = &self.nodes[node as usize];
        other.alive && other.born <= since && !self.net.stalled_since(node, since)
    }

    /// Checks the peers that a node has lost since the last check, and the reasons.
    pub fn check_losses(&mut self, at: u32) -> Result<(), JobError> {
        for peer in 0..self.nodes.len() as u32 {
            let Some(why) = self.nodes[at as usize].engine.pml().why_lost(Peer(peer)) else { continue };
            if !self.lost_peers.insert((at, peer)) {
                continue;
            }
            self.net.set_given_up(at, peer, true);
            let Some(stall) = self.stall_timeout else { continue };
            let since =
                self.silent_nodes.iter().find(|silent| silent.node == peer && !silent.lost).map(|silent| silent.since);
            let wrong = match (why, since) {
                (Lost::Stalled, Some(since)) => {
                    self.net.count(|counts| counts.given_up_stalled += 1);
                    self.now - since < stall / 2 && self.separated_only_by_stall(peer, at)
                }
                // A peer that was never connected does not answer a hello.
                (Lost::TimedOut, Some(since)) if self.now - since >= stall / 2 => false,
                // While it is stalled, there is no other valid reason.
                (_, Some(since)) => self.separated_only_by_stall(peer, at) && self.ran_since(at, since),
                (_, None) => false,
            };
            if wrong {
                return Err(JobError::WrongReason(at, peer, format!("{why:?}")));
            }
        }
        Ok(())
    }

    /// Whether only a stall of one node separates it from another.
    pub fn separated_only_by_stall(&self, node: u32, other: u32) -> bool {
        self.stalled_pairs.contains(&(node, other)) && !self.died.contains(&node) && !self.died.contains(&other)
    }
}

/// The sends and receives for which a node waits for another, by number. `true` means a send.
fn waiting_ops(node: &Node<'_>, of: u32) -> Vec<(bool, u32)> {
    let ops = node.ops.iter().filter_map(|op| match op.kind {
        OpKind::Send { message } => (message.to == of).then_some((true, op.number)),
        OpKind::Recv { receive, cancel: None, .. } => (receive.source == Some(of)).then_some((false, op.number)),
        OpKind::Recv { .. } => None,
    });
    ops.collect()
}
