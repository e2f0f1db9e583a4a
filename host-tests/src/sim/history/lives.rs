//! Incarnations of nodes, and which incarnations they know of each other, in the course of the history.

use std::collections::{HashMap, HashSet};

/// A posted operation, and the positions of its start and its end in the history.
pub(super) struct Posted<T> {
    pub what: T,
    pub at: usize,
    pub end: Option<usize>,
    /// Its node died before it ended.
    pub void: bool,
    /// It ended with a failure.
    pub failed: bool,
    /// The incarnations of the sender and the receiver. For a receive, this is set once it has got a message.
    pub stream: Stream,
}

/// A node and its incarnation.
pub(super) type Incarnation = (u32, u32);

/// The messages from one incarnation to another on a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Stream {
    pub comm: u32,
    pub from: Incarnation,
    pub to: Incarnation,
}

/// The incarnations of all nodes, and those that nodes know of each other.
#[derive(Default)]
pub(super) struct Incarnations {
    pub now: HashMap<u32, u32>,
    pub known: HashMap<(u32, u32), u32>,
    pub died: HashSet<Incarnation>,
    pub disconnected: HashSet<(u32, u32)>,
}

impl Incarnations {
    pub fn of(&self, node: u32) -> Incarnation {
        (node, self.now.get(&node).copied().unwrap_or(0))
    }

    /// A node in the incarnation that another node knows.
    pub fn known(&self, by: u32, node: u32) -> Incarnation {
        if by == node { self.of(node) } else { (node, self.known.get(&(by, node)).copied().unwrap_or(0)) }
    }

    /// Whether a node may have failed, as another node sees it.
    pub fn failed(&self, by: u32, node: u32) -> bool {
        self.died.contains(&self.known(by, node)) || self.are_severed(by, node)
    }

    /// Whether two nodes were disconnected for longer than the limit.
    pub fn are_severed(&self, one: u32, other: u32) -> bool {
        self.disconnected.contains(&(one.min(other), one.max(other)))
    }

    /// Whether messages between these incarnations may have been lost.
    pub fn may_lose(&self, stream: &Stream) -> bool {
        let Stream { from, to, .. } = stream;
        self.died.contains(from) || self.died.contains(to) || self.are_severed(from.0, to.0)
    }
}
