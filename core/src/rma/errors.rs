//! What one-sided operations can answer besides success.

use core::fmt;

use crate::error::Blame;

/// The target did not do it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
#[repr(u8)]
pub enum Denied {
    /// No such memory: deregistered meanwhile, or a handle that its owner never gave out.
    NoMemory = 1,
    /// The memory was not registered for that, or not for this peer.
    NoRight = 2,
    /// It reaches beyond the memory.
    OutOfBounds = 3,
    /// The target has no such operation, or not at an address with such an alignment.
    NotAvailable = 4,
}

impl Denied {
    /// As the peer has written it. What this version does not know was denied for a reason that it does not have.
    pub(super) const fn of(status: u8) -> Option<Self> {
        match status {
            0 => None,
            1 => Some(Self::NoMemory),
            2 => Some(Self::NoRight),
            3 => Some(Self::OutOfBounds),
            _ => Some(Self::NotAvailable),
        }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoMemory => "the target has no such memory registered (any more)",
            Self::NoRight => "the target did not register the memory for that",
            Self::OutOfBounds => "beyond the end of the target's memory",
            Self::NotAvailable => "the target has no such operation, or not at such an address",
        })
    }
}

impl core::error::Error for Denied {}

/// An operation was not begun: nothing is changed anywhere.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum BeginError {
    /// As many operations are under way as there are slots: `OPAL_ERR_OUT_OF_RESOURCE`.
    Full,
    /// The peer is lost or was removed.
    Unreachable,
    /// No such operation, or not with such a length or alignment: `OPAL_ERR_NOT_AVAILABLE`.
    NotAvailable,
    /// It reaches beyond the memory that the handle names, or the two lengths differ.
    OutOfBounds,
    /// The local handle was deregistered, or is not for what the operation does to the memory, or not for that memory.
    NotRegistered,
}

impl BeginError {
    /// Who has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Full => Blame::Resource,
            Self::Unreachable => Blame::Peer,
            Self::NotAvailable | Self::OutOfBounds | Self::NotRegistered => Blame::Caller,
        }
    }
}

impl fmt::Display for BeginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "too many one-sided operations are under way: make progress and try again",
            Self::Unreachable => "the peer is lost or was removed",
            Self::NotAvailable => "no such operation here, or not with such a length or alignment",
            Self::OutOfBounds => "beyond the end of the memory",
            Self::NotRegistered => "the local memory is not registered for that",
        })
    }
}

impl core::error::Error for BeginError {}

/// Why an operation that was begun is not done. Whether the target did it is not known where the peer was lost or removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Failure {
    /// The peer was lost.
    Lost,
    /// The peer was removed.
    Removed,
    /// The target refused; parts of a put or get that lie before may have been done.
    Denied(Denied),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => f.write_str("the peer was lost before the operation was complete"),
            Self::Removed => f.write_str("the peer was removed before the operation was complete"),
            Self::Denied(denied) => denied.fmt(f),
        }
    }
}

impl core::error::Error for Failure {}
