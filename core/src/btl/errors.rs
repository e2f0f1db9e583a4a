//! What the operations of a BTL module can answer besides success.

use core::fmt;

use crate::btl::descriptor::Descriptor;
use crate::error::Blame;
use crate::rail;

const EARLY: &str = "the order is of no operation to this peer that is complete: take the one that its callback tells";

/// No descriptor was given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum AllocError {
    /// All descriptors are in use.
    Exhausted,
    /// The peer is lost or was removed.
    Unreachable,
    /// The reserve is longer than a descriptor or a frame.
    TooLong,
    /// The order is that of no operation to this peer that is complete.
    TooEarly,
}

impl AllocError {
    /// Who has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Exhausted => Blame::Resource,
            Self::Unreachable => Blame::Peer,
            Self::TooLong | Self::TooEarly => Blame::Caller,
        }
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exhausted => "all descriptors are in use: free some, or make progress and try again",
            Self::Unreachable => "the peer is lost or was removed",
            Self::TooLong => "the reserve is longer than a descriptor's memory or than a frame",
            Self::TooEarly => EARLY,
        })
    }
}

impl core::error::Error for AllocError {}

/// A send was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum SendError {
    /// As many sends are under way as the module has slots for.
    Full,
    /// The peer is lost or was removed.
    Unreachable,
    /// The descriptor was freed, or is another module's.
    Stale,
    /// Longer than the rail's longest frame.
    TooLong,
    /// 255, or the tag of what modules say to each other.
    NotATag,
}

impl SendError {
    /// Who has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Full => Blame::Resource,
            Self::Unreachable => Blame::Peer,
            Self::Stale | Self::TooLong | Self::NotATag => Blame::Caller,
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "too many sends are under way: make progress and try again",
            Self::Unreachable => "the peer is lost or was removed",
            Self::Stale => "the descriptor was freed, or is another module's",
            Self::TooLong => "the descriptor is longer than the rail's longest frame: split it",
            Self::NotATag => "255 is no tag, and 16 is for modules alone: choose another one",
        })
    }
}

impl core::error::Error for SendError {}

/// Nothing was sent at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum ImmediateError {
    /// The rail is full. The descriptor, if one was wanted and is to be had, is the caller's.
    Busy(Option<Descriptor>),
    /// The peer is lost or was removed.
    Unreachable,
    /// Longer than the rail's eager limit.
    TooLong,
    /// 255, or the tag of what modules say to each other.
    NotATag,
    /// The order is that of no operation to this peer that is complete.
    TooEarly,
}

impl ImmediateError {
    /// Who has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Busy(_) => Blame::Resource,
            Self::Unreachable => Blame::Peer,
            Self::TooLong | Self::NotATag | Self::TooEarly => Blame::Caller,
        }
    }
}

impl fmt::Display for ImmediateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy(_) => "the rail is full: send a descriptor, or make progress and try again",
            Self::Unreachable => "the peer is lost or was removed",
            Self::TooLong => "header and payload are longer than the eager limit: send a descriptor",
            Self::NotATag => "255 is no tag, and 16 is for modules alone: choose another one",
            Self::TooEarly => EARLY,
        })
    }
}

impl core::error::Error for ImmediateError {}

/// Why a send that was queued did not leave, as far as is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Failure {
    /// The peer was lost; the error callback says why.
    Lost,
    /// The peer was removed.
    Removed,
    /// The rail refused.
    Refused(rail::SendError),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => f.write_str("the peer was lost before the send was complete"),
            Self::Removed => f.write_str("the peer was removed before the send was complete"),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Failure {}
