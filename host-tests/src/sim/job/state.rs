//! A job under way.

use std::collections::BTreeSet;

use towline_core::convertor::Span;
use towline_core::mtl::{Mode, Refusal};
use towline_core::pml::Config;
use towline_core::rail::{Lost, Peer, Rail, Unreachable};
use towline_core::time::Duration;

use super::counts::Named;
use super::node::{Kind, Node};
use super::rails::{Links, Set};
use super::report::JobError;
use super::setting::{Death, Toggle};
use super::silent_node::Vigil;
use super::window_table::{Known, Windows};
use crate::random::Random;
use crate::sim::history::{History, Record};
use crate::sim::network::faults::Planted;
use crate::sim::network::{Net, SimRail};
use crate::sim::plan::{Plan, Step};

/// A node that is to hear that another is back.
#[derive(Clone, Copy)]
pub(super) struct Meeting {
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
    pub worked_at: u64,
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
    pub fn node(&mut self, me: u32, rails: Vec<SimRail>, next: usize) -> Result<Node<'m>, JobError> {
        let first_sequence = self.config.first_sequence.wrapping_add(me.into());
        let config = Config { seed: self.random.word(), first_sequence, ..self.config };
        let rails = Set::new(rails, self.links, self.random.word(), self.plan.programs.len() as u32);
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
    pub fn introduce(&mut self, node: u32, peer: u32) -> Result<(), JobError> {
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
        added.map_err(|why| JobError::Refused(node, why.to_string()))?;
        let life = self.nodes[peer.0 as usize].life;
        self.nodes[node as usize].lives.insert(peer.0, life);
        Ok(())
    }

    /// No rail leads to that node: it was refused, is not known, and nothing is to come of it.
    pub fn cannot_reach(&mut self, node: u32, peer: Peer, added: Result<(), Unreachable>) -> Result<(), JobError> {
        let engine = &mut self.nodes[node as usize].engine;
        // SAFETY: no bytes are given.
        let sent = unsafe { engine.pml().isend(peer, 0, 0, Mode::Standard, Span::of(&[])) };
        if added != Err(Unreachable::NoNetwork) || sent != Err(Refusal::NoPeer(peer)) {
            return Err(JobError::NotUnlinked(node, peer.0, format!("{added:?}, {sent:?}")));
        }
        engine.pml().lose_peer(peer, Lost::Broken);
        self.net.count(|counts| counts.unlinked += 1);
        if self.apart.insert((node.min(peer.0), node.max(peer.0))) {
            self.history.note(Record::Severed(node, peer.0));
        }
        Ok(())
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
