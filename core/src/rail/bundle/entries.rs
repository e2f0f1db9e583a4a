//! The entries of a bundle's tables: peers, and frames that the links hold.

use zerocopy::FromZeros;

use crate::pool::Handle;
use crate::rail::{Frame, Origin};

/// A peer of a bundle.
#[derive(Clone, Copy, FromZeros, Debug)]
pub(super) struct PeerState {
    /// The user's number of the peer.
    pub peer: u32,
    /// The links that reach the peer, one bit each.
    pub added: u64,
    /// The links that are down.
    pub down: u64,
    /// The link that bulk frames are tried by first.
    pub turn: u32,
    /// Whether the peer is in the queue of peers whose frames migrate.
    pub migrates: bool,
    pub lost: bool,
}

impl PeerState {
    /// Whether a link reaches the peer and is not down.
    pub const fn is_usable(&self, link: usize) -> bool {
        has(self.added & !self.down, link)
    }
}

/// Whether the bit of a link is set.
pub(super) const fn has(bits: u64, link: usize) -> bool {
    bits & bit(link) != 0
}

pub(super) const fn bit(link: usize) -> u64 {
    1 << (link % 64)
}

/// A frame that a link holds. Its handle here is the user's name of the frame.
#[derive(Clone, Copy, FromZeros, Debug)]
pub(super) struct Held {
    /// The link's name of the frame.
    pub id: u64,
    pub link: u32,
    /// The slot of the peer.
    pub at: u32,
    /// Counts the frames in the order in which they arrived.
    pub serial: u64,
    /// Whether the user has it.
    pub out: bool,
}

/// A frame that arrived and that was not reported yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Withheld {
    pub handle: Handle,
    /// The link has given this frame its own name, and the peer's slot.
    pub frame: Frame,
    /// For a migrated frame that may be one that the user holds: its identity. No link can tell before the user has decided about
    /// its own frame.
    pub doubtful: Option<Origin>,
}
