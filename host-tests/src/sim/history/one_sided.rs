//! One-sided operations as programs see them, and whether what came of them is right.
//!
//! A window is memory that a node has registered: some words, and an area for each node. What is in it is known at any time,
//! whoever is faster:
//! - each node has its own area, and one put or get there at a time: so a get brings what was put last;
//! - counters are only added one to: each sum that an operation found is found once, and at the end there are as many as
//!   there were operations;
//! - the cell is only changed to values that are each operation's own, so each value is found once by who changes it,
//!   and the last is what is there at the end. An operation that finds its own value was done twice.
//!
//! Of an operation that failed with its target, or whose initiator died, nobody knows whether it was done; once is the most.

use towline_core::rma::{Access, Denied};

use crate::pattern::patterned;

/// Where the counter of 64 bits is, that of 32, whose neighbour nobody changes, and the cell.
pub const COUNTERS: [u64; 2] = [0, 8];
/// The same.
pub const CELL: u64 = 16;
/// Where the areas begin; before it is a word that nobody changes.
pub const AREAS: u64 = 32;

/// Memory of a node that others reach, as it was registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Whose.
    pub node: u32,
    /// Nodes, each of which has an area.
    pub nodes: u32,
    /// Bytes of an area.
    pub area: u64,
    /// What others may do.
    pub access: Access,
}

impl Window {
    /// Bytes of it.
    pub fn len(&self) -> u64 {
        AREAS + u64::from(self.nodes) * self.area
    }

    /// Whether there is none: never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the area of a node begins.
    pub fn area_of(&self, node: u32) -> u64 {
        AREAS + u64::from(node) * self.area
    }
}

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RmaKind {
    /// Bytes of the number of the operation go to the area of who asks.
    Put {
        /// Where in the area.
        at: u64,
        /// How many.
        len: u64,
    },
    /// Bytes of that area are read.
    Get {
        /// Where in the area.
        at: u64,
        /// How many.
        len: u64,
    },
    /// One is added to one of the [`COUNTERS`].
    Add(usize),
    /// The cell becomes [`own`], whatever it was.
    Swap,
    /// The cell becomes [`own`] if it is that.
    CompareSwap(u64),
}

/// The value that belongs to an operation.
pub fn own(number: u32) -> u64 {
    u64::from(number) + 1
}

/// The bytes that an operation puts.
pub fn bytes(number: u32, len: u64) -> Vec<u8> {
    patterned((1 << 40) | u64::from(number), len as usize)
}

/// What is wrong with the handle of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forgery {
    /// Nothing.
    None,
    /// Its owner never gave out such a one.
    Handle,
    /// The memory is shorter.
    Length,
    /// The memory lies elsewhere, so that words are not where they seem to be.
    Base,
}

/// An operation that was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RmaOp {
    /// By whom.
    pub from: u32,
    /// In which window.
    pub window: u32,
    /// What.
    pub deed: RmaKind,
    /// Or not.
    pub forgery: Forgery,
}

impl RmaOp {
    pub(super) const fn needs(&self) -> Access {
        match self.deed {
            RmaKind::Put { .. } => Access::REMOTE_WRITE,
            RmaKind::Get { .. } => Access::REMOTE_READ,
            _ => Access::REMOTE_ATOMIC,
        }
    }
}

/// How an operation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RmaOutcome {
    /// It was done. What an atomic found, or the [`digest`] of what was got.
    Done(u64),
    /// The target did not do it.
    Denied(Denied),
    /// The target was lost.
    Lost,
}
