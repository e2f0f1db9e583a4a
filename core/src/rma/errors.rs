//! The errors of one-sided operations.

use core::fmt;

use crate::error::Blame;

/// Why the target denied an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
#[repr(u8)]
pub enum Denied {
    /// The memory is not registered: it was deregistered before, or its owner never gave out this handle.
    NoMemory = 1,
    /// The memory was not registered for this kind of operation, or not for this peer.
    NoRight = 2,
    /// The operation reaches beyond the end of the memory.
    OutOfBounds = 3,
    /// The target has no such operation, or not at an address with this alignment.
    NotAvailable = 4,
}

impl Denied {
    /// The reason from the number in an answer; `None` for 0. Numbers that this version does not know count as `NotAvailable`.
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
            Self::NoMemory => "the target has deregistered this memory, or never registered it: ask its owner for a new handle",
            Self::NoRight => {
                "the target did not register the memory for this operation or for this peer: register it with that right"
            }
            Self::OutOfBounds => "the operation reaches beyond the end of the target's memory: check offset and length",
            Self::NotAvailable => "the target does not have this operation, or not at an address with this alignment: use another operation or offset",
        })
    }
}

impl core::error::Error for Denied {}

crate::debug_as_display!(Denied);

/// Why an operation was not begun. Nothing has changed on either side.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum BeginError {
    /// All slots for operations are in use: `OPAL_ERR_OUT_OF_RESOURCE`.
    Full,
    /// The peer is lost or was removed.
    Unreachable,
    /// There is no such operation, or not with this length or alignment: `OPAL_ERR_NOT_AVAILABLE`.
    NotAvailable,
    /// The operation reaches beyond the end of the memory that the handle names.
    OutOfBounds,
    /// The local memory was deregistered, lacks the right that the operation needs, or does not lie in the registration.
    NotRegistered,
}

impl BeginError {
    /// The side that has to act.
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
            Self::Full => "too many one-sided operations are in progress: make progress and try again",
            Self::Unreachable => "the peer is lost or was removed: its memory cannot be reached any more",
            Self::NotAvailable => "there is no such operation, or not with this length or alignment: use another operation, length or offset",
            Self::OutOfBounds => "the operation reaches beyond the end of the target's memory: check offset and length",
            Self::NotRegistered => "the local memory is not registered for this operation: register it with the right that the operation needs",
        })
    }
}

impl core::error::Error for BeginError {}

crate::debug_as_display!(BeginError);

/// Why an operation that was begun has failed. If the peer was lost or removed, it is not known whether the operation was done.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Failure {
    /// The peer was lost.
    Lost,
    /// The peer was removed.
    Removed,
    /// The target denied the operation. Earlier parts of a put or get may have been done.
    Denied(Denied),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => f.write_str(
                "the peer was lost before the operation was complete: go on without it, or wait for its replacement",
            ),
            Self::Removed => f.write_str(
                "the peer was removed by the caller before the operation was complete: wait for operations first",
            ),
            Self::Denied(denied) => denied.fmt(f),
        }
    }
}

impl core::error::Error for Failure {}

crate::debug_as_display!(Failure);
