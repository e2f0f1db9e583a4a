//! Why an operation failed.

use std::fmt;

use towline_core::convertor::{LayoutError, Misfit};
use towline_core::error::Blame;
use towline_core::mtl::CommError;
use towline_core::rma::Denied;

use crate::values::address::Address;

/// Why an operation on messages failed. Ranks are those of the communicator that was used.
///
/// ```
/// let world = towline::init()?;
/// let error = world.send(9, 0, b"to nobody").unwrap_err();
/// assert_eq!(error, towline::Error::NoSuchRank { rank: 9, size: 1 });
/// assert_eq!(error.to_string(), "there is no rank 9: the communicator has 1");
/// # Ok::<(), towline::SetupError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// As many operations as were set up are under way.
    Busy,
    /// The communicator has no such rank.
    NoSuchRank {
        /// The rank that was asked for.
        rank: u32,
        /// How many ranks there are.
        size: u32,
    },
    /// No rank of the communicator has this address.
    NoSuchAddress(Address),
    /// The tag is above [`TAG_MAX`](crate::TAG_MAX).
    NoSuchTag(u32),
    /// A rank was lost: it ended, or the way to it broke.
    PeerFailed {
        /// Which one.
        rank: u32,
    },
    /// A rank was lost and is back, and the communicator was made before: its new process is not in it. Drop the communicator,
    /// and make it anew with all.
    Restarted {
        /// Which one.
        rank: u32,
    },
    /// The message was longer than the memory to receive it; what fits was delivered.
    Truncated {
        /// Who sent it.
        source: u32,
        /// Its tag.
        tag: u32,
        /// Its length in bytes.
        sent: u64,
        /// How much was delivered.
        delivered: u64,
    },
    /// There is no memory for a message of unknown length.
    NoMemory {
        /// Its length.
        bytes: u64,
    },
    /// The receive was cancelled.
    Cancelled,
    /// A ready send found no posted receive.
    NotReady {
        /// To which rank.
        rank: u32,
    },
    /// The receiver dropped its communicator before it received the message.
    NoCommunicator {
        /// Which rank.
        rank: u32,
    },
    /// The world was finished, or the operation belongs to another.
    Finished,
    /// A layout cannot be built.
    Layout(LayoutError),
    /// A layout reaches out of its buffer.
    Misfit(Misfit),
    /// A layout means some bytes twice, so nothing can be received into it.
    Overlap,
    /// A layout on an accelerator is no part of a buffer.
    OnAccelerator,
    /// A communicator cannot be made.
    Communicator(CommError),
    /// A rank could not make its part of a window: it has no memory, or too many windows.
    NoWindow {
        /// Which one.
        rank: u32,
    },
    /// A one-sided operation reaches beyond a rank's part of the window.
    OutOfWindow {
        /// Whose part.
        rank: u32,
    },
    /// A rank did not do what was asked of its part of a window.
    Refused {
        /// Which one.
        rank: u32,
        /// Why.
        why: Denied,
    },
    /// There is no such operation on such words, or not at such an offset.
    NoSuchOperation,
}

impl Error {
    /// Who has to act.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Busy | Self::NoMemory { .. } | Self::NoWindow { .. } | Self::Communicator(CommError::Full) => {
                Blame::Resource
            }
            Self::PeerFailed { .. } | Self::Restarted { .. } | Self::NoCommunicator { .. } | Self::Refused { .. } => {
                Blame::Peer
            }
            _ => Blame::Caller,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("all requests are in use: wait for operations first, or raise TOWLINE_REQUESTS"),
            Self::NoSuchRank { rank, size } => write!(f, "there is no rank {rank}: the communicator has {size}"),
            Self::NoSuchAddress(address) => write!(f, "the communicator has no {address}"),
            Self::NoSuchTag(tag) => {
                write!(f, "tag {tag} is above {}: larger ones belong to the library", crate::TAG_MAX)
            }
            Self::PeerFailed { rank } => {
                write!(f, "rank {rank} was lost: it ended, or the way to it broke; see its output for the reason")
            }
            Self::Restarted { rank } => write!(
                f,
                "rank {rank} was started again, and is not in this communicator, which is from before: make it anew, with `dup` \
                 or `split` by all ranks"
            ),
            Self::Truncated { source, tag, sent, delivered } => write!(
                f,
                "the message from rank {source} with tag {tag} has {sent} bytes, the receive took {delivered}: give it more \
                 memory"
            ),
            Self::NoMemory { bytes } => {
                write!(f, "there is no memory for a message of {bytes} bytes: send it in parts")
            }
            Self::Cancelled => f.write_str("the receive was cancelled"),
            Self::NotReady { rank } => {
                write!(f, "rank {rank} had posted no receive for a ready send: post it first, or send in standard mode")
            }
            Self::NoCommunicator { rank } => {
                write!(f, "rank {rank} dropped the communicator before it received the message")
            }
            Self::Finished => f.write_str("the world was finished, or the operation belongs to another one"),
            Self::Layout(why) => why.fmt(f),
            Self::Misfit(why) => why.fmt(f),
            Self::Overlap => f.write_str("the layout means some bytes twice: receive into another one"),
            Self::OnAccelerator => {
                f.write_str("the layout is on an accelerator, and the buffer is not: make the view of an address")
            }
            Self::Communicator(why) => why.fmt(f),
            Self::NoWindow { rank } => {
                write!(f, "rank {rank} has no memory for its part of the window, or too many windows")
            }
            Self::OutOfWindow { rank } => write!(f, "this reaches beyond rank {rank}'s part of the window"),
            Self::Refused { rank, why } => write!(f, "rank {rank} refused a one-sided operation: {why}"),
            Self::NoSuchOperation => f.write_str("there is no such operation on such words, or not at such an offset"),
        }
    }
}

impl std::error::Error for Error {}

impl From<LayoutError> for Error {
    fn from(why: LayoutError) -> Self {
        Self::Layout(why)
    }
}

impl From<Misfit> for Error {
    fn from(why: Misfit) -> Self {
        Self::Misfit(why)
    }
}

/// An operation on an owned buffer failed: why, and the buffer.
///
/// ```
/// let world = towline::init()?;
/// let failed = world.isend(9, 0, vec![1u8, 2, 3]).unwrap_err();
/// assert_eq!(failed.buffer, [1, 2, 3]); // not lost
/// let error: towline::Error = failed.into(); // as `?` does
/// assert_eq!(error, towline::Error::NoSuchRank { rank: 9, size: 1 });
/// # Ok::<(), towline::SetupError>(())
/// ```
pub struct Failed<B> {
    /// Why.
    pub error: Error,
    /// What was to be sent, or received into: it may hold part of a message.
    pub buffer: B,
}

impl<B> fmt::Display for Failed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<B> fmt::Debug for Failed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failed").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<B> std::error::Error for Failed<B> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl<B> From<Failed<B>> for Error {
    fn from(failed: Failed<B>) -> Self {
        failed.error
    }
}
