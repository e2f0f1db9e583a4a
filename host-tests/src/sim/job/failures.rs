//! Failures: nodes that die and restart, disconnections, and rails that are disabled.

use towline_core::rail::{Lost, Peer};

use super::counts::{add, transitions};
use super::report::JobError;
use super::setting::{Death, Toggle};
use super::silent_node::SilentNode;
use super::state::{Introduction, Job};
use super::window_state::NodeWindows;
use super::windows::one_sided_counts;
use crate::sim::history::{Outcome, Record};
use crate::sim::network::faults::{FOR_EVER, PlantedBug};

/// Nanoseconds within which a restarted node is introduced to all other nodes.
const INTRODUCTION_DELAY: u64 = 1_000_000;

impl Job<'_> {
    /// Applies the events that are due by the clock. Returns whether there was one.
    pub fn apply_due_events(&mut self) -> Result<bool, JobError> {
        let now = self.now;
        if self.faults_end_at.is_some_and(|at| at <= now) && !self.faults_ended {
            self.faults_ended = true;
            self.net.advance(now);
            self.net.end_faults();
            self.deaths.clear();
            self.toggles.clear();
            self.fault_boundaries = self.net.fault_boundaries();
            self.update_stalled_nodes();
            self.disabled_rails.iter_mut().for_each(|disabled| disabled.2 = now);
            self.disconnected.retain(|disconnected| disconnected.2 <= now);
        }
        let due: Vec<_> = self.disconnected.extract_if(.., |disconnected| disconnected.2 <= now).collect();
        for (one, other, _) in &due {
            self.net.trace(*one, || format!("is cut off from {other}"));
            self.history.note(Record::Disconnected(*one, *other));
            self.separated.insert((*one.min(other), *one.max(other)));
        }
        self.net.advance(now);
        let mut active = !due.is_empty();
        active |= self.enable_rails()?;
        if self.fault_boundaries.pop_if(|at| *at <= now).is_some() {
            while self.fault_boundaries.pop_if(|at| *at <= now).is_some() {}
            self.update_stalled_nodes();
        }
        self.check_silent_nodes()?;
        for node in 0..self.nodes.len() {
            if self.nodes[node].back_at.is_some_and(|at| at <= now) {
                self.revive(node as u32)?;
                active = true;
            }
        }
        let due: Vec<_> = self.introductions.extract_if(.., |introduction| introduction.at <= now).collect();
        for Introduction { node, peer, .. } in due {
            active = true;
            if self.separated.contains(&(node.min(peer), node.max(peer))) {
                self.lose_unknown_peer(node, peer);
            } else {
                self.meet(node, peer)?;
            }
        }
        if active {
            self.wake_all();
        }
        Ok(active)
    }

    /// The next nanosecond at which an event is due.
    pub fn next_event_at(&self) -> Option<u64> {
        let disconnected = self.disconnected.iter().map(|disconnected| disconnected.2);
        let back = self.nodes.iter().filter_map(|node| node.back_at);
        let meetings = self.introductions.iter().map(|introduction| introduction.at);
        let disabled = self.disabled_rails.iter().map(|disabled| disabled.2);
        let silent_nodes = self.silent_nodes.iter().filter_map(SilentNode::due);
        disconnected
            .chain(disabled)
            .chain(silent_nodes)
            .chain(back)
            .chain(meetings)
            .chain(self.fault_boundaries.last().copied())
            .chain(self.faults_end_at)
            .filter(|at| *at > self.now && *at != FOR_EVER)
            .min()
    }

    /// Disables rails that are due after the steps of a node so far.
    pub fn disable_rails(&mut self, at: usize) {
        let calls = self.nodes[at].calls;
        let due: Vec<_> = self.toggles.extract_if(.., |one| one.node == at as u32 && one.calls <= calls).collect();
        for Toggle { node, rail, span, .. } in due {
            self.net.trace(node, || format!("disables rail {rail} until {}", self.now + span));
            if self.planted != Some(PlantedBug::DisabledRailUsed) {
                let done = self.nodes[at].engine.enable_rail(rail as usize, false);
                done.expect("all rails of a job can be disabled");
            }
            self.set_enabled(node, rail, false);
            self.net.count(|counts| counts.disabled += 1);
            self.disabled_rails.push((node, rail, self.now + span));
        }
    }

    /// Sets whether a rail may be given frames. It may be a simulated rail, or a link, whose own and earlier frames are
    /// still sent.
    pub fn set_enabled(&mut self, node: u32, rail: u32, on: bool) {
        let rails = self.nodes[node as usize].engine.pml().rails_mut();
        rails.0[rail as usize].set_enabled(on);
    }

    /// Enables rails whose time is over. Returns whether there was one.
    pub fn enable_rails(&mut self) -> Result<bool, JobError> {
        let now = self.now;
        let stays = self.planted == Some(PlantedBug::RailStaysDisabled);
        let due: Vec<_> = self.disabled_rails.extract_if(.., |disabled| disabled.2 <= now).collect();
        for (node, rail, _) in due.iter().copied() {
            let again = self.disabled_rails.iter().any(|disabled| (disabled.0, disabled.1) == (node, rail));
            if again || stays || !self.nodes[node as usize].alive {
                continue;
            }
            self.net.trace(node, || format!("enables rail {rail}"));
            let engine = &mut self.nodes[node as usize].engine;
            let was = engine.pml().is_enabled(rail as usize);
            engine.enable_rail(rail as usize, true).map_err(|why| JobError::Refused(node, why.to_string()))?;
            self.set_enabled(node, rail, true);
            self.net.count(|counts| counts.enabled += u64::from(!was)); // otherwise it belongs to an earlier incarnation
        }
        Ok(!due.is_empty())
    }

    /// Counts one step of a node, at which it may die. Returns whether it has died.
    pub fn step_may_kill(&mut self, at: usize) -> bool {
        let node = &mut self.nodes[at];
        node.calls += 1;
        self.disable_rails(at);
        let node = &mut self.nodes[at];
        let Some(next) = self.deaths.iter().position(|death| death.node == at as u32) else { return false };
        let Death { calls, back_after, with_host, .. } = self.deaths[next];
        if node.calls < calls {
            return false;
        }
        self.deaths.remove(next);
        self.net.trace(at as u32, || "dies".into());
        self.net.kill(at as u32, with_host);
        self.history.note(Record::Died(at as u32));
        self.died.insert(at as u32);
        self.lost_peers.retain(|gone| gone.0 != at as u32);
        add(&mut self.transitions, &transitions(node.engine.counters()));
        add(&mut self.transitions, &one_sided_counts(&mut node.engine).0);
        add(&mut self.transitions, &node.engine.rails().counters());
        node.alive = false;
        node.back_at = back_after.map(|after| self.now + after);
        node.ops.clear();
        node.node_windows.clear();
        node.taken.clear();
        node.finished_sends.clear();
        node.record_buffers(&mut self.history, &mut self.scratch);
        self.introductions.retain(|introduction| introduction.node != at as u32 && introduction.peer != at as u32);
        if with_host && self.net.hosts_answer() {
            self.watch_lost_host(at as u32);
        }
        true
    }

    pub fn revive(&mut self, me: u32) -> Result<(), JobError> {
        self.net.trace(me, || "is back".into());
        let rails = self.net.revive(me);
        let mut node = self.node(me, rails, self.nodes[me as usize].next)?;
        node.computes_until = self.now;
        let before = &self.nodes[me as usize];
        (node.incarnation, node.node_windows) = (before.incarnation + 1, NodeWindows::new(before.node_windows.left));
        self.nodes[me as usize] = node;
        self.open_windows(me as usize);
        self.update_stalled_nodes();
        for other in 0..self.nodes.len() as u32 {
            let apart = self.separated.contains(&(me.min(other), me.max(other)));
            if apart {
                self.nodes[me as usize].engine.pml().lose_peer(Peer(other), Lost::Broken); // no rail leads to it
                self.lose_unknown_peer(other, me);
            }
            if self.nodes[other as usize].alive && !apart {
                self.meet(me, other)?;
                if other != me {
                    let at = self.now + self.random.length(INTRODUCTION_DELAY);
                    self.introductions.push(Introduction { at, node: other, peer: me });
                }
            }
        }
        Ok(())
    }

    /// Reports a peer as lost to a node from which no rail leads to it. A node that restarted while the peer was dead does
    /// not know that peer, and would wait for it forever, since no engine gives up an unknown peer.
    pub fn lose_unknown_peer(&mut self, node: u32, peer: u32) {
        let node = &mut self.nodes[node as usize];
        if node.alive && !node.introduced.contains(&peer) {
            node.engine.pml().lose_peer(Peer(peer), Lost::Broken);
        }
    }

    /// Introduces a peer to a node. The node may know an earlier incarnation of the peer, and may have noticed its end or
    /// not.
    pub fn meet(&mut self, node: u32, peer: u32) -> Result<(), JobError> {
        self.end_previous_incarnation(node, peer)?;
        if self.introduce(node, peer).is_err() {
            self.nodes[node as usize].engine.del_peer(Peer(peer));
            self.end_previous_incarnation(node, peer)?;
            self.introduce(node, peer)?;
        }
        self.lost_peers.remove(&(node, peer));
        self.net.set_given_up(node, peer, false);
        self.net.trace(node, || format!("meets {peer}"));
        self.history.note(Record::Introduced { node, peer });
        Ok(())
    }

    /// Completes the operations that have ended so far, since they belong to the earlier incarnation.
    pub fn end_previous_incarnation(&mut self, node: u32, peer: u32) -> Result<(), JobError> {
        for taken in &mut self.nodes[node as usize].taken {
            taken.wait = 0;
        }
        self.receive_taken(node as usize)?;
        self.complete(node as usize)?;
        let left = self.nodes[node as usize].taken.extract_if(.., |taken| taken.found.peer.0 == peer);
        for taken in left {
            self.history.note(Record::Received(taken.number, Outcome::PeerFailed(peer))); // there is no request for it
        }
        Ok(())
    }
}
