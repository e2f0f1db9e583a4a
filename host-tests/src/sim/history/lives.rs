//! Nodes that die and come back, as the history goes on.

use std::collections::{HashMap, HashSet};

/// A record of a posting, and where in the history it and its end are.
pub(super) struct Posted<T> {
    pub what: T,
    pub at: usize,
    pub end: Option<usize>,
    /// Its node died before it ended.
    pub void: bool,
    /// It ended with a failure.
    pub failed: bool,
    /// The lives between which it goes, or for a receive that ended well, from which it came.
    pub stream: Stream,
}

/// A node in one of its lives.
pub(super) type Incarnation = (u32, u32);

/// What goes from one life to another on a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Stream {
    pub comm: u32,
    pub from: Incarnation,
    pub to: Incarnation,
}

/// Who lives how often, and who knows whom, as the history goes on.
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

    /// A node as another knows it.
    pub fn known(&self, by: u32, node: u32) -> Incarnation {
        if by == node { self.of(node) } else { (node, self.known.get(&(by, node)).copied().unwrap_or(0)) }
    }

    /// Whether a node may have failed for another.
    pub fn failed(&self, by: u32, node: u32) -> bool {
        self.died.contains(&self.known(by, node)) || self.are_severed(by, node)
    }

    pub fn are_severed(&self, one: u32, other: u32) -> bool {
        self.disconnected.contains(&(one.min(other), one.max(other)))
    }

    /// Whether what went between these lives may have been lost.
    pub fn may_lose(&self, stream: &Stream) -> bool {
        let Stream { from, to, .. } = stream;
        self.died.contains(from) || self.died.contains(to) || self.are_severed(from.0, to.0)
    }
}
