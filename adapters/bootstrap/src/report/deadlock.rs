//! Ranks that can never go on: those that wait for each other, and those that wait for a rank that has finished.
//!
//! The contexts of the job are the nodes of a graph, and what they wait for are its edges. A context can go on if it does not
//! wait, or if one of its waits may end: because the peer can go on, or because the matching operation is in progress at the
//! peer. A wait for any rank may end if one of the other ranks can go on. A context that cannot go on by these rules is stuck.
//!
//! Reports are not made at one moment, and a message may be on its way. So a wait counts only after some time, and the result
//! is a probable deadlock.

use std::collections::{BTreeMap, BTreeSet};

use super::{Activity, Operation, OperationKind, Peer, Report, Stage, Wait};

/// A wait that is shorter may end by a message that is on its way.
const WAIT_MIN_MS: u64 = 200;

/// A context: its rank and index.
pub(super) type Id = (u32, u32);

/// What is known of a context.
pub(super) enum Node<'a> {
    /// It may go on: nothing is known of it, or it does not wait.
    Free,
    /// It has finished or ended, and sends and receives nothing more.
    Ended,
    /// It has made a report.
    Reported(&'a Report),
}

/// The contexts that can never go on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Stuck {
    /// Contexts that wait for each other in a circle: each for the next one, and the last one for the first.
    pub circles: Vec<Vec<Id>>,
    /// Contexts that wait for one that has ended or that waits for the end of the world: the waiting one, and the ended one.
    /// `None`: it waits for any rank, and all others have ended or are stuck.
    pub waits_for_ended: Vec<(Id, Option<Id>)>,
}

/// Finds the contexts that can never go on.
pub(super) fn find(nodes: &BTreeMap<Id, Node<'_>>) -> Stuck {
    let graph = Graph::new(nodes);
    let free = graph.free();
    let waiting = |id: &Id| matches!(graph.nodes.get(id), Some(Node::Reported(report)) if !is_finishing(report));
    let stuck: BTreeSet<Id> = graph.nodes.keys().copied().filter(|id| !free.contains(id) && waiting(id)).collect();
    let mut found = Stuck::default();
    for id in &stuck {
        if !graph.targets(*id).any(|target| stuck.contains(&target)) {
            let ended = if graph.waits_for_any(*id) { None } else { graph.targets(*id).next() };
            found.waits_for_ended.push((*id, ended));
        }
    }
    // From each stuck context to the first one for which it waits: this leads into a circle, or to an ended context.
    let next = |id: Id| graph.targets(id).find(|target| stuck.contains(target));
    let mut seen = BTreeSet::new();
    for start in &stuck {
        let (mut path, mut at) = (Vec::new(), Some(*start));
        while let Some(id) = at {
            if let Some(from) = path.iter().position(|other| *other == id) {
                found.circles.push(path.split_off(from));
                break;
            }
            if !seen.insert(id) {
                break;
            }
            path.push(id);
            at = next(id);
        }
    }
    found
}

/// Whether the context waits for the end of the world: its program sends and receives nothing more.
fn is_finishing(report: &Report) -> bool {
    report.activity == Activity::Waiting && report.waits.iter().any(|wait| wait.operation.kind == OperationKind::Finish)
}

struct Graph<'a> {
    nodes: &'a BTreeMap<Id, Node<'a>>,
    /// For each context the operations of others with it, and whose they are.
    towards: BTreeMap<Id, Vec<(Id, &'a Operation)>>,
}

impl<'a> Graph<'a> {
    fn new(nodes: &'a BTreeMap<Id, Node<'a>>) -> Self {
        let mut towards: BTreeMap<Id, Vec<(Id, &Operation)>> = BTreeMap::new();
        for (id, node) in nodes {
            let Node::Reported(report) = node else { continue };
            for operation in all_operations(report) {
                if let Peer::One { rank, index } = operation.peer {
                    towards.entry((rank, index)).or_default().push((*id, operation));
                }
            }
        }
        Self { nodes, towards }
    }

    /// The contexts that can go on. Contexts that have ended or that wait for the end of the world are not among them.
    fn free(&self) -> BTreeSet<Id> {
        let is_free = |node: &Node<'_>| match node {
            Node::Free => true,
            Node::Ended => false,
            Node::Reported(report) => report.activity != Activity::Waiting,
        };
        let mut free: BTreeSet<Id> = self.nodes.iter().filter(|(_, node)| is_free(node)).map(|(id, _)| *id).collect();
        loop {
            let before = free.len();
            for (id, node) in self.nodes {
                if let Node::Reported(report) = node
                    && !free.contains(id)
                    && !is_finishing(report)
                    && report.waits.iter().any(|wait| self.may_end(*id, wait, &free))
                {
                    free.insert(*id);
                }
            }
            if free.len() == before {
                return free;
            }
        }
    }

    /// Whether a wait of context `id` may end.
    fn may_end(&self, id: Id, wait: &Wait, free: &BTreeSet<Id>) -> bool {
        let operation = &wait.operation;
        let by_itself = operation.stage == Stage::Moving
            || matches!(operation.kind, OperationKind::Future | OperationKind::OneSided | OperationKind::FreeRequest)
            || wait.waited_ms < WAIT_MIN_MS;
        by_itself
            || match operation.peer {
                Peer::One { rank, index } => {
                    let peer = (rank, index);
                    free.contains(&peer)
                        || !self.nodes.contains_key(&peer)
                        || self.is_answered(id, operation, Some(peer))
                }
                Peer::Any => free.iter().any(|other| *other != id) || self.is_answered(id, operation, None),
                Peer::All | Peer::None => true,
            }
    }

    /// Whether a matching operation is in progress at the peer, or at any other context.
    fn is_answered(&self, id: Id, operation: &Operation, peer: Option<Id>) -> bool {
        let mut towards_me = self.towards.get(&id).into_iter().flatten();
        let by_name = |(owner, other): &(Id, &Operation)| {
            *owner != id && peer.is_none_or(|peer| peer == *owner) && matches_with(operation, other)
        };
        // A receive from any rank names no peer.
        let by_any = |peer: Id| match self.nodes.get(&peer) {
            Some(Node::Reported(report)) => {
                all_operations(report).any(|other| other.peer == Peer::Any && matches_with(operation, other))
            }
            _ => false,
        };
        towards_me.any(by_name) || peer.is_some_and(by_any)
    }

    fn others(&self, id: Id) -> impl Iterator<Item = Id> {
        self.nodes.keys().copied().filter(move |other| *other != id)
    }

    /// The contexts for which a stuck context waits.
    fn targets(&self, id: Id) -> impl Iterator<Item = Id> {
        let waits = match self.nodes.get(&id) {
            Some(Node::Reported(report)) => &report.waits[..],
            _ => &[],
        };
        waits.iter().flat_map(move |wait| {
            let (one, any) = match wait.operation.peer {
                Peer::One { rank, index } => (Some((rank, index)), false),
                Peer::Any => (None, true),
                Peer::All | Peer::None => (None, false),
            };
            one.into_iter().chain(self.others(id).filter(move |_| any))
        })
    }

    fn waits_for_any(&self, id: Id) -> bool {
        let Some(Node::Reported(report)) = self.nodes.get(&id) else { return false };
        report.waits.iter().any(|wait| wait.operation.peer == Peer::Any)
    }
}

fn all_operations(report: &Report) -> impl Iterator<Item = &Operation> {
    report.waits.iter().map(|wait| &wait.operation).chain(&report.operations)
}

/// Whether two operations of contexts that are each other's peers match: then their message is on its way.
fn matches_with(own: &Operation, other: &Operation) -> bool {
    use OperationKind::{Collective, Probe, Receive, Send, SynchronousSend};
    let opposite = match (&own.kind, &other.kind) {
        (Receive | Probe, Send | SynchronousSend) | (Send | SynchronousSend, Receive) => true,
        // Collective operations exchange messages in both directions; equal tags are those of the same step.
        (Collective(own), Collective(other)) => own == other,
        _ => false,
    };
    let tags = own.tag.is_none() || other.tag.is_none() || own.tag == other.tag;
    opposite && tags && own.communicator == other.communicator
}
