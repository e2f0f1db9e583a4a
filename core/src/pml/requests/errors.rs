//! Why an operation was refused, or ended without success.

use core::fmt;

use crate::error::Blame;
use crate::pml::requests::request::Status;
use crate::rail::Peer;

/// Why an operation ended without success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Failure {
    /// The message was longer than the memory of the receive. The bytes that fit were delivered.
    Truncated(Status),
    /// The receive was cancelled before it matched.
    Cancelled,
    /// The peer was lost.
    PeerFailed(Peer),
    /// The peer was lost and was added again since the communicator was made. The new peer is not in the communicator.
    Restarted(Peer),
    /// A ready send found no posted receive.
    NotReady(Peer),
    /// The receiver had deleted the communicator.
    NoCommunicator(Peer),
    /// No such request: its outcome was taken already, or the request was never given out.
    NoRequest,
}

impl Failure {
    /// The party that has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::PeerFailed(_) | Self::Restarted(_) | Self::NoCommunicator(_) => Blame::Peer,
            _ => Blame::Caller,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated(status) => write!(
                f,
                "the message from peer {} with tag {} has {} bytes, the receive took {}: post a larger one",
                status.peer.0, status.tag, status.received, status.delivered
            ),
            Self::Cancelled => f.write_str("the receive was cancelled"),
            Self::PeerFailed(peer) => write!(f, "peer {} was lost", peer.0),
            Self::Restarted(peer) => say_restarted(f, *peer),
            Self::NotReady(peer) => {
                write!(
                    f,
                    "peer {} had posted no receive for a ready send: post it first, or send in standard mode",
                    peer.0
                )
            }
            Self::NoCommunicator(peer) => write!(f, "peer {} had deleted the communicator", peer.0),
            Self::NoRequest => f.write_str("no such request: its outcome was taken already, or it never was"),
        }
    }
}

impl core::error::Error for Failure {}

/// Why an operation was not accepted. Nothing was begun, and the memory is the caller's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Refusal {
    /// All requests are in use: take outcomes, or set up with more requests.
    Busy,
    /// The peer was never added.
    NoPeer(Peer),
    /// The peer was lost.
    PeerFailed(Peer),
    /// The peer was lost and was added again since the communicator was made. The new peer is not in the communicator.
    Restarted(Peer),
    /// The rank, the tag or the communicator is not valid.
    Invalid,
}

impl Refusal {
    /// The party that has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Busy => Blame::Resource,
            Self::PeerFailed(_) | Self::Restarted(_) => Blame::Peer,
            Self::NoPeer(_) | Self::Invalid => Blame::Caller,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("all requests are taken: take outcomes first, or set up with more requests"),
            Self::NoPeer(peer) => write!(f, "peer {} was never added", peer.0),
            Self::PeerFailed(peer) => write!(f, "peer {} was lost", peer.0),
            Self::Restarted(peer) => say_restarted(f, *peer),
            Self::Invalid => f.write_str("no such rank, tag or communicator"),
        }
    }
}

impl core::error::Error for Refusal {}

pub(in crate::pml) fn say_restarted(f: &mut fmt::Formatter<'_>, peer: Peer) -> fmt::Result {
    write!(f, "peer {} was lost and is back since the communicator was made: make the communicator anew", peer.0)
}
