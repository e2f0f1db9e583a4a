//! Why an operation was refused, or ended without success.

use core::fmt;

use crate::error::Blame;
use crate::pml::requests::request::Status;
use crate::rail::Peer;

/// Why an operation ended without success.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Failure {
    /// The message was longer than the memory of the receive. The bytes that fit were delivered. Post a larger receive.
    Truncated(Status),
    /// The receive was cancelled before it matched, or the send before it left.
    Cancelled,
    /// The peer was lost.
    PeerFailed(Peer),
    /// The peer ended normally before the operation was complete.
    PeerClosed {
        /// Which peer.
        peer: Peer,
        /// The tag of the message, or the tag that the receive asked for, [`ANY`](crate::pml::matching::ANY) included.
        tag: u32,
        /// Bytes of the message that was to be sent. `None` for a receive.
        bytes: Option<u64>,
    },
    /// The peer was lost and was added again since the communicator was made. The new peer is not in the communicator.
    Restarted(Peer),
    /// A ready send found no posted receive.
    NotReady(Peer),
    /// The receiver deleted the communicator, or [refuses](crate::pml::Pml::refuse_unexpected) all messages, and had not received
    /// this one. The status names the receiver, the tag and the length.
    NoCommunicator(Status),
    /// The message is longer than the memory of the device that was to send or receive it.
    TooLong,
    /// The device that had the operation has failed. Whether the message was sent or received is not known.
    DeviceFailed,
    /// Messages of this peer were lost with a device: their sends were complete, and they have not been received. The receive got none
    /// of them, and has nothing to do with their tags. It is reported once for a peer.
    MessagesLost(Peer),
    /// The memory of the operation cannot be read or written by the device or accelerator that was to do it. The message of a send
    /// was cut short, that of a receive is lost.
    BadMemory,
    /// The peer cannot read the memory of the message that it has begun to send. Some of its bytes may have been delivered. The status
    /// says how long the message is, and how many bytes the receive would have taken.
    Aborted(Status),
    /// No such request: its outcome was taken already, or the request was never given out.
    NoRequest,
}

impl Failure {
    /// The party that has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::PeerFailed(_)
            | Self::PeerClosed { .. }
            | Self::Restarted(_)
            | Self::NoCommunicator(_)
            | Self::Aborted(_) => Blame::Peer,
            Self::TooLong | Self::DeviceFailed | Self::MessagesLost(_) => Blame::Resource,
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
            Self::Cancelled => f.write_str(
                "the operation was cancelled by the caller: a receive before it matched, a send before it left",
            ),
            Self::PeerFailed(peer) => write!(
                f,
                "peer {} was lost before the operation was complete: go on without it, or wait for its replacement",
                peer.0
            ),
            Self::PeerClosed { peer, tag, bytes: None } => {
                write!(
                    f,
                    "peer {} ended, and sent no message with tag {tag}: have it send one before it ends, or do not wait for it",
                    peer.0
                )
            }
            Self::PeerClosed { peer, tag, bytes: Some(bytes) } => {
                write!(
                    f,
                    "peer {} ended before it received the message of {bytes} bytes with tag {tag}: have it receive all messages first",
                    peer.0
                )
            }
            Self::Restarted(peer) => say_restarted(f, *peer),
            Self::NotReady(peer) => {
                write!(
                    f,
                    "peer {} had posted no receive for a ready send: post it first, or send in standard mode",
                    peer.0
                )
            }
            Self::NoCommunicator(status) => write!(
                f,
                "peer {} deleted the communicator before it received the message of {} bytes with tag {}: have it receive all messages \
                 first",
                status.peer.0, status.received, status.tag
            ),
            Self::TooLong => f.write_str(TOO_LONG),
            Self::DeviceFailed => f.write_str(
                "the device that had the operation, or that of its peer, has failed: whether the message was sent or received is not \
                 known, and later messages go by other transports",
            ),
            Self::MessagesLost(peer) => write!(
                f,
                "messages that peer {} has sent were lost with a device that failed: have it send again what was not received",
                peer.0
            ),
            Self::BadMemory => f.write_str(
                "the memory of the message cannot be read or written by the device: it has to stay mapped, with the rights that the \
                 operation needs, until the operation has ended",
            ),
            Self::Aborted(status) => write!(
                f,
                "peer {} cannot read the memory of its message, of which a part may have been delivered: have it send the message again",
                status.peer.0
            ),
            Self::NoRequest => f.write_str(
                "no such request: its outcome was taken already, or it never existed; take each outcome once",
            ),
        }
    }
}

impl core::error::Error for Failure {}

crate::debug_as_display!(Failure);

/// Why an operation was not accepted. Nothing was begun, and the memory still belongs to the caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Refusal {
    /// All requests are in use: take outcomes, or set up with more requests.
    Busy,
    /// The peer was never added, or was deleted.
    NoPeer(Peer),
    /// The peer was lost.
    PeerFailed(Peer),
    /// The peer has ended normally.
    PeerClosed(Peer),
    /// The peer was lost and was added again since the communicator was made. The new peer is not in the communicator.
    Restarted(Peer),
    /// The rank, the tag, the communicator or the matched message is not valid.
    Invalid,
    /// The message is longer than what the memory of the device that is to send it has for one message.
    TooLong,
    /// The device that matches the messages of this communicator has failed.
    DeviceFailed,
}

impl Refusal {
    /// The party that has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Busy | Self::TooLong | Self::DeviceFailed => Blame::Resource,
            Self::PeerFailed(_) | Self::PeerClosed(_) | Self::Restarted(_) => Blame::Peer,
            Self::NoPeer(_) | Self::Invalid => Blame::Caller,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("all requests are in use: take outcomes first, or set up with more requests"),
            Self::NoPeer(peer) => write!(f, "peer {} was never added, or was deleted: add it first", peer.0),
            Self::PeerFailed(peer) => write!(f, "peer {} was lost: go on without it, or wait for its replacement", peer.0),
            Self::PeerClosed(peer) => write!(f, "peer {} has ended: go on without it", peer.0),
            Self::Restarted(peer) => say_restarted(f, *peer),
            Self::TooLong => f.write_str(TOO_LONG),
            Self::DeviceFailed => f.write_str("the device that matches the messages of this communicator has failed: reset it, and start again"),
            Self::Invalid => f.write_str("the communicator was deleted, or the rank, tag or message is not valid: pass those of an existing communicator"),
        }
    }
}

impl core::error::Error for Refusal {}

crate::debug_as_display!(Refusal);

/// The message of both `TooLong` errors.
const TOO_LONG: &str = "the message is longer than what the memory of the device that is to send or receive it has for one message: give \
                        the device a larger window, or send the message in parts";

/// Writes the message of both `Restarted` errors.
pub(in crate::pml) fn say_restarted(f: &mut fmt::Formatter<'_>, peer: Peer) -> fmt::Result {
    write!(f, "peer {} was lost and replaced since the communicator was made: make a new communicator", peer.0)
}
