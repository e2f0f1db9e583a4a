//! The errors of the operations of a BTL module.

use core::fmt;

use crate::btl::descriptor::Descriptor;
use crate::error::Blame;
use crate::rail;

const UNKNOWN_ORDER: &str =
    "the order is not that of a complete operation to this peer: use the order from its callback";

/// Why no descriptor was allocated.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum AllocError {
    /// All descriptors are in use.
    Exhausted,
    /// The peer is lost or was removed.
    Unreachable,
    /// The reserve is longer than a descriptor's memory or than a frame, or leaves no room for data.
    TooLong,
    /// The order is not that of a complete operation to this peer.
    UnknownOrder,
}

impl AllocError {
    /// The side that has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Exhausted => Blame::Resource,
            Self::Unreachable => Blame::Peer,
            Self::TooLong | Self::UnknownOrder => Blame::Caller,
        }
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exhausted => "all descriptors are in use: free some, or make progress and try again",
            Self::Unreachable => "the peer is lost or was removed: add it again, or use another module",
            Self::TooLong => "the reserve takes more than a descriptor's memory or a frame, or leaves no room for data: use a shorter one",
            Self::UnknownOrder => UNKNOWN_ORDER,
        })
    }
}

impl core::error::Error for AllocError {}

crate::debug_as_display!(AllocError);

/// Why a send was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum SendError {
    /// All of the module's slots for sends are in use.
    Full,
    /// The peer is lost or was removed.
    Unreachable,
    /// The descriptor was freed, or belongs to another module.
    Stale,
    /// The descriptor is longer than the rail's longest frame.
    TooLong,
    /// The tag is 255, or the tag of the modules' own frames.
    InvalidTag,
}

impl SendError {
    /// The side that has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Full => Blame::Resource,
            Self::Unreachable => Blame::Peer,
            Self::Stale | Self::TooLong | Self::InvalidTag => Blame::Caller,
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "all slots for sends are in use: make progress and try again",
            Self::Unreachable => "the peer is lost or was removed: add it again, or use another module",
            Self::Stale => "the descriptor was freed, or belongs to another module: allocate a new one",
            Self::TooLong => "the descriptor is longer than the rail's longest frame: split it",
            Self::InvalidTag => "tag 255 is not valid, and tag 16 is reserved for modules: choose another tag",
        })
    }
}

impl core::error::Error for SendError {}

crate::debug_as_display!(SendError);

/// Why nothing was sent immediately.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ImmediateError {
    /// The rail is full. The error has a descriptor if the caller wanted one and one was free. The caller owns that descriptor.
    Busy(Option<Descriptor>),
    /// The peer is lost or was removed.
    Unreachable,
    /// Header and payload are longer than the rail's eager limit.
    TooLong,
    /// The tag is 255, or the tag of the modules' own frames.
    InvalidTag,
    /// The order is not that of a complete operation to this peer.
    UnknownOrder,
}

impl ImmediateError {
    /// The side that has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Busy(_) => Blame::Resource,
            Self::Unreachable => Blame::Peer,
            Self::TooLong | Self::InvalidTag | Self::UnknownOrder => Blame::Caller,
        }
    }
}

impl fmt::Display for ImmediateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy(_) => "the rail is full: send a descriptor, or make progress and try again",
            Self::Unreachable => "the peer is lost or was removed: add it again, or use another module",
            Self::TooLong => "header and payload are longer than the eager limit: send a descriptor",
            Self::InvalidTag => "tag 255 is not valid, and tag 16 is reserved for modules: choose another tag",
            Self::UnknownOrder => UNKNOWN_ORDER,
        })
    }
}

impl core::error::Error for ImmediateError {}

crate::debug_as_display!(ImmediateError);

/// Why a send that was queued has failed. The frame may have left nevertheless.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Failure {
    /// The peer was lost; the error callback gets the reason.
    Lost,
    /// The peer was removed.
    Removed,
    /// The rail refused the frame.
    Refused(rail::SendError),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => f.write_str(
                "the peer was lost before the send was complete: go on without it, or wait for its replacement",
            ),
            Self::Removed => {
                f.write_str("the peer was removed by the caller before the send was complete: wait for sends first")
            }
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Failure {}

crate::debug_as_display!(Failure);
