//! Why a frame was not taken, why a rail does not reach a peer, and why a peer was lost.

use core::fmt;

use crate::error::Blame;

/// A frame was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum SendError {
    /// No room now, or still connecting: try again after polling.
    Busy,
    /// The peer was lost, or is not known here. In the first case [`Event::Lost`](crate::rail::Event::Lost) was reported or will be.
    Unreachable,
    /// Longer than the lane takes, or a header longer than [`HEAD`](crate::rail::HEAD).
    TooLong,
}

impl SendError {
    /// Who has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Busy => Blame::Resource,
            Self::Unreachable => Blame::Peer,
            Self::TooLong => Blame::Caller,
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "the rail is full: poll, then try again",
            Self::Unreachable => "the peer is lost or was never added to this rail",
            Self::TooLong => "the frame is longer than the lane's limit: split it",
        })
    }
}

impl core::error::Error for SendError {}

/// Why a rail is no way to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Unreachable {
    /// The peer has no such rail.
    NoCard,
    /// The peer's card cannot be understood.
    BadCard,
    /// The peer speaks another version of the rail's protocol.
    Version,
    /// The peer is on another host, and this rail does not leave the host.
    OtherHost,
    /// The peer is another process, and this rail does not leave the process.
    OtherProcess,
    /// No network of both sides is allowed by the lists of interfaces.
    NoNetwork,
    /// The rail's tables are full.
    Full,
    /// The operating system refused; the adapter logged what.
    System,
    /// The rail takes all peers in one call, which was made.
    TooLate,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCard => "the peer published no card for this rail",
            Self::BadCard => "the peer's card cannot be understood",
            Self::Version => "the peer speaks another version",
            Self::OtherHost => "the peer is on another host",
            Self::OtherProcess => "the peer is another process",
            Self::NoNetwork => "no network in common that the interface lists allow",
            Self::Full => "the rail's tables are full",
            Self::System => "the operating system refused, see the log",
            Self::TooLate => "the rail takes all peers in one call, which was made: add all of them at once",
        })
    }
}

impl core::error::Error for Unreachable {}

/// Why a peer was lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Lost {
    /// The peer closed in good order.
    Closed,
    /// The connection broke, or the process is gone.
    Broken,
    /// A deadline passed.
    TimedOut,
    /// The peer broke the protocol.
    Misbehaved,
    /// The peer is there, but gave no sign of life for as long as the stall time-out says: it computes, or is stopped.
    Stalled,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the peer closed",
            Self::Broken => "the connection broke or the process is gone",
            Self::TimedOut => "a deadline passed",
            Self::Misbehaved => "the peer broke the protocol",
            Self::Stalled => "the peer gave no sign of life within the stall time-out",
        })
    }
}
