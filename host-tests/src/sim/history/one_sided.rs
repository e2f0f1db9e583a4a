//! One-sided operations as programs see them, and the rules for their results.
//!
//! A window is memory that a node has registered: some words, and an area for each node. Its content is known at any
//! time, independently of the timing:
//! - Each node has its own area, with one put or get at a time, so a get returns the bytes of the last put.
//! - Counters are only incremented by one. Each value is returned by one operation, and the final value is the number
//!   of operations.
//! - The cell is only changed to values that are unique for each operation, so each value is returned by at most one
//!   operation that changes it, and the last one remains. An operation that returns its own value was done twice.
//!
//! An operation that failed with its target, or whose initiator died, may have been done or not, but at most once.

use towline_core::rma::{Access, Denied};

use crate::pattern::patterned;

/// Offsets of the counters of 64 and of 32 bits. The second one is half a word; the other half is never changed.
pub const COUNTERS: [u64; 2] = [0, 8];
/// Offset of the cell.
pub const CELL: u64 = 16;
/// Offset of the areas. The word before them is never changed.
pub const AREAS: u64 = 32;

/// A window: memory of a node that other nodes can access, as it was registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// The owner.
    pub node: u32,
    /// Number of nodes. Each has an area.
    pub nodes: u32,
    /// Bytes of an area.
    pub area: u64,
    /// The rights of other nodes.
    pub access: Access,
}

impl Window {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        AREAS + u64::from(self.nodes) * self.area
    }

    /// Always `false`: every window has some words.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Offset of the area of a node.
    pub fn area_of(&self, node: u32) -> u64 {
        AREAS + u64::from(node) * self.area
    }
}

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RmaKind {
    /// Writes the operation's bytes to the initiator's area.
    Put {
        /// Offset in the area.
        at: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Reads bytes of the initiator's area.
    Get {
        /// Offset in the area.
        at: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Adds one to one of the [`COUNTERS`].
    Add(usize),
    /// Sets the cell to [`own`], and returns its value.
    Swap,
    /// Sets the cell to [`own`] if it has this value.
    CompareSwap(u64),
}

/// The unique value of an operation.
pub fn own(number: u32) -> u64 {
    u64::from(number) + 1
}

/// The bytes of a put.
pub fn bytes(number: u32, len: u64) -> Vec<u8> {
    patterned((1 << 40) | u64::from(number), len as usize)
}

/// A forgery of the handle of remote memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forgery {
    /// No forgery.
    None,
    /// The owner never gave out this handle.
    Handle,
    /// The handle claims more memory than there is.
    Length,
    /// The handle claims another base address, so words are not aligned.
    Base,
}

/// An operation that was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RmaOp {
    /// The initiator.
    pub from: u32,
    /// The window.
    pub window: u32,
    /// The kind.
    pub kind: RmaKind,
    /// The forgery of its handle, if any.
    pub forgery: Forgery,
}

impl RmaOp {
    pub(super) const fn needs(&self) -> Access {
        match self.kind {
            RmaKind::Put { .. } => Access::REMOTE_WRITE,
            RmaKind::Get { .. } => Access::REMOTE_READ,
            _ => Access::REMOTE_ATOMIC,
        }
    }
}

/// The outcome of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RmaOutcome {
    /// It was done. The value that an atomic returned, or the digest of the bytes of a get.
    Done(u64),
    /// The target denied it.
    Denied(Denied),
    /// The target was lost.
    Lost,
}
