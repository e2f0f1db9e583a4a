//! The state of a running job.

use std::collections::{BTreeMap, BTreeSet};

use towline_core::convertor::Span;
use towline_core::mtl::{Mode, Refusal};
use towline_core::pml::Config;
use towline_core::rail::{Lost, Peer, Rail, Unreachable};
use towline_core::time::Duration;

use super::counts::Named;
use super::node::{Node, OpKind};
use super::rails::{LinkParams, NodeRails};
use super::report::JobError;
use super::setting::{Death, Toggle};
use super::silent_node::SilentNode;
use super::window_state::{KnownWindow, Windows};
use crate::random::Random;
use crate::sim::history::{History, Record};
use crate::sim::network::faults::PlantedBug;
use crate::sim::network::{Net, SimRail};
use crate::sim::plan::{Plan, Step};

/// A pending introduction: a restarted peer will be introduced to a node.
#[derive(Clone, Copy)]
pub(super) struct Introduction {
    pub at: u64,
    pub node: u32,
    pub peer: u32,
}

pub(super) struct Job<'m> {
    pub nodes: Vec<Node<'m>>,
    /// Receives of the plan that have been posted.
    pub posted: Vec<bool>,
    pub plan: &'m Plan,
    pub net: Net,
    pub random: Random,
    pub history: History,
    pub now: u64,
    pub config: Config,
    pub links: Option<LinkParams>,
    pub planted: Option<PlantedBug>,
    pub pace: u64,
    pub scratch: Vec<u8>,
    /// Deaths that have not happened.
    pub deaths: Vec<Death>,
    pub disconnected: Vec<(u32, u32, u64)>,
    pub toggles: Vec<Toggle>,
    /// Disabled rails: the node, the rail, and until when.
    pub disabled_rails: Vec<(u32, u32, u64)>,
    pub stall_timeout: Option<u64>,
    pub cancels_sends: bool,
    /// The number of the last send from a node to another.
    pub latest_sends: BTreeMap<(u32, u32), u32>,
    /// Nodes that are stalled or lost.
    pub silent_nodes: Vec<SilentNode>,
    pub stalled_pairs: BTreeSet<(u32, u32)>,
    /// Nodes that have died.
    pub died: BTreeSet<u32>,
    /// Pairs of a node and a peer that it has lost.
    pub lost_peers: BTreeSet<(u32, u32)>,
    /// Disconnected pairs, the lower node first. They are not introduced again.
    pub separated: BTreeSet<(u32, u32)>,
    pub faults_end_at: Option<u64>,
    /// The times at which timed faults begin and end, in falling order.
    pub fault_boundaries: Vec<u64>,
    /// All faults have ended.
    pub faults_ended: bool,
    /// Requests may fail because of a node.
    pub failures_expected: bool,
    /// Introductions to restarted nodes that are due later.
    pub introductions: Vec<Introduction>,
    pub recoveries: u64,
    /// When a program last made progress.
    pub last_work_at: u64,
    /// Number of sends and receives that have completed, without cancelled ones.
    pub ended: u64,
    /// Most sends and receives that a program has in progress.
    pub window: usize,
    /// Counters of engines that no longer exist.
    pub transitions: Vec<Named>,
    pub windows: Option<Windows>,
    /// All windows that ever existed, by number.
    pub known: Vec<KnownWindow>,
}

impl<'m> Job<'m> {
    /// Makes a node in its next incarnation.
    pub fn node(&mut self, me: u32, rails: Vec<SimRail>, next: usize) -> Result<Node<'m>, JobError> {
        let first_sequence = self.config.first_sequence.wrapping_add(me.into());
        let config = Config { seed: self.random.word(), first_sequence, ..self.config };
        let rails = NodeRails::new(rails, self.links, self.random.word(), self.plan.programs.len() as u32);
        let mut node = Node::new(me, config, rails, self.plan, next)?;
        node.born = self.now;
        if let Some(stall) = self.stall_timeout {
            let stall = match self.planted {
                Some(PlantedBug::NoStallTimeout) => 0,
                Some(PlantedBug::ShortStallTimeout) => stall / 64,
                _ => stall,
            };
            node.engine.pml().set_stall_timeout(Duration::from_nanos(stall));
        }
        Ok(node)
    }

    /// Introduces one node to another.
    pub fn introduce(&mut self, node: u32, peer: u32) -> Result<(), JobError> {
        let other = &mut self.nodes[peer as usize].engine;
        let cards: Vec<Vec<u8>> = other.pml().rails().0.iter().map(|rail| rail.card().to_vec()).collect();
        let params = other.params();
        self.nodes[node as usize].introduced.insert(peer);
        let engine = &mut self.nodes[node as usize].engine;
        let peer = Peer(peer);
        let added = engine.add_peer(peer, &params, |index, rail| rail.add_peer(peer, &cards[index]));
        if self.net.are_unreachable(node, peer.0) {
            return self.cannot_reach(node, peer, added);
        }
        added.map_err(|why| JobError::Refused(node, why.to_string()))?;
        let incarnation = self.nodes[peer.0 as usize].incarnation;
        self.nodes[node as usize].known_incarnations.insert(peer.0, incarnation);
        Ok(())
    }

    /// Checks the result for a node without a common rail: it was refused, is unknown, and sends to it are refused.
    pub fn cannot_reach(&mut self, node: u32, peer: Peer, added: Result<(), Unreachable>) -> Result<(), JobError> {
        let engine = &mut self.nodes[node as usize].engine;
        // SAFETY: no bytes are given.
        let sent = unsafe { engine.pml().isend(peer, 0, 0, Mode::Standard, Span::of(&[])) };
        if added != Err(Unreachable::NoNetwork) || sent != Err(Refusal::NoPeer(peer)) {
            return Err(JobError::NotUnreachable(node, peer.0, format!("{added:?}, {sent:?}")));
        }
        engine.pml().lose_peer(peer, Lost::Broken);
        self.net.count(|counts| counts.unlinked += 1);
        if self.separated.insert((node.min(peer.0), node.max(peer.0))) {
            self.history.note(Record::Disconnected(node, peer.0));
        }
        Ok(())
    }

    /// Describes the remaining work of each node.
    pub fn situation(&mut self) -> String {
        let plan = self.plan;
        let nodes = self.nodes.iter_mut().filter(|node| !node.done()).map(|node| {
            let step = node.program.get(node.next).map(|step| match step {
                Step::Send(message, after) => format!("{:?} after {after:?}", plan.messages[*message as usize]),
                Step::Recv(receive, _) | Step::Probe(receive) | Step::MatchedProbe(receive) => {
                    format!("{step:?} {:?}", plan.receives[*receive as usize])
                }
                _ => format!("{step:?}"),
            });
            let ops = node.ops.iter().map(|op| match op.kind {
                OpKind::Send { .. } => format!("send {} {:?}", op.number, self.history.sent(op.number)),
                OpKind::Recv { receive, .. } => format!("receive {} {receive:?}", op.number),
            });
            let ops: Vec<_> = ops.collect();
            let used = node.engine.pml().used();
            let counters = node.engine.counters();
            let windows = node.node_windows.situation();
            format!("\nnode {} next {step:?}\n  has {ops:?}\n  {windows}\n  used {used:?}, {counters:?}", node.me)
        });
        let nodes: Vec<_> = nodes.collect();
        format!("at {} ns, {} frames in flight or held{}", self.now, self.net.unreleased_frames(), nodes.concat())
    }
}
