//! The errors of a rail: why it did not take a frame, why it does not reach a peer, and why it lost a peer.

use core::fmt;

use crate::error::Blame;

/// A rail did not take a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum SendError {
    /// There is no room now, or the connection is not ready: try again after polling.
    Busy,
    /// The peer was lost, or was never added. In the first case [`Event::Lost`](crate::rail::Event::Lost) was reported, or will
    /// be.
    Unreachable,
    /// The frame is longer than the limit of its lane, or its header is longer than [`HEAD`](crate::rail::HEAD) (on a link
    /// [`LINKED_HEAD`](crate::rail::LINKED_HEAD)), or the tag is one of a link's own.
    TooLong,
}

impl SendError {
    /// The side that has to act.
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
            Self::Unreachable => {
                "the peer is lost, or was never added to this rail: poll for the report of its loss, or add it"
            }
            Self::TooLong => {
                "the frame or its header is too long, or its tag is reserved for links: split it, or use another tag"
            }
        })
    }
}

impl core::error::Error for SendError {}

crate::debug_as_display!(SendError);

/// Why a rail does not reach a peer.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Unreachable {
    /// The peer has no such rail.
    NoCard,
    /// The peer's card is malformed.
    BadCard,
    /// The peer speaks another version of the rail's protocol.
    Version,
    /// The peer is on another host, and this rail does not leave the host.
    OtherHost,
    /// The peer is another process, and this rail does not leave the process.
    OtherProcess,
    /// No network of both sides is allowed by the lists of interfaces.
    NoNetwork,
    /// The rail's tables are full, or the card is longer than an entry of the tables.
    Full,
    /// The operating system refused; the adapter has logged the reason.
    System,
    /// The rail takes all peers in one call, and that call was made before.
    TooLate,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCard => "the peer published no card for this rail: its own log or warnings say why",
            Self::BadCard => "the peer's card is malformed: use the same version and settings of towline on all hosts",
            Self::Version => {
                "the peer's rail has another protocol version: use the same version of towline on all hosts"
            }
            Self::OtherHost => "the peer is on another host",
            Self::OtherProcess => "the peer is another process",
            Self::NoNetwork => {
                "the two hosts share no network that the interface lists allow: allow a common network on both hosts"
            }
            Self::Full => {
                "the rail's tables are full, or the card is too long: configure the rail for more peers or longer cards"
            }
            Self::System => "the operating system refused; the log has the reason",
            Self::TooLate => {
                "the rail takes all peers in one call, and that call was made before: add all peers at once"
            }
        })
    }
}

impl core::error::Error for Unreachable {}

crate::debug_as_display!(Unreachable);

/// Why a peer was lost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Lost {
    /// The peer ended the connection normally.
    Closed,
    /// The connection broke, or the peer's process has ended.
    Broken,
    /// The peer did not answer in time.
    TimedOut,
    /// The peer violated the protocol.
    Misbehaved,
    /// The peer's host answers, but its process gave no answer within the stall time-out: it computes, or is stopped.
    Stalled,
    /// A rail had no room for its connection to the peer, such as a ring in shared memory, and no other rail reaches the peer.
    NoRoom,
    /// The device that carries frames to the peer has failed, or that of the peer. Nothing is known of the peer's process.
    DeviceFailed,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the peer ended the connection",
            Self::Broken => "the connection broke, or the peer's process has ended",
            Self::TimedOut => "the peer did not answer in time",
            Self::Misbehaved => "the peer violated the protocol",
            Self::Stalled => "the peer gave no sign of life within the stall time-out",
            Self::NoRoom => "there was no room for the connection to the peer, and no other rail reaches it",
            Self::DeviceFailed => {
                "a device between this process and the peer has failed, and no other rail reaches the peer"
            }
        })
    }
}
