//! Errors of operations on messages and windows.

use std::fmt;

use towline_core::convertor::{BoundsError, LayoutError};
use towline_core::error::Blame;
use towline_core::mtl::CommError;
use towline_core::pml::EnableError;
use towline_core::rma::Denied;
use towline_net::counted;

use crate::values::address::Address;
use crate::values::shortage::Shortage;

/// Why an operation on messages or windows failed. Ranks are those of the communicator that was used.
///
/// ```
/// let world = towline::init()?;
/// let error = world.send(9, 0, b"to nobody").unwrap_err();
/// assert_eq!(error, towline::Error::NoSuchRank { rank: 9, size: 1 });
/// assert_eq!(error.to_string(), "there is no rank 9: the communicator has 1 (numbered from 0)");
/// # Ok::<(), towline::SetupError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// As many operations are in progress as [`Config::requests`](crate::Config::requests) allows.
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
    /// A rank was lost: it ended, or no connection to it is left.
    PeerFailed {
        /// Which rank.
        rank: u32,
    },
    /// Shared memory has no room for messages between this rank and another one, and no other transport in use reaches that rank.
    /// Both ranks get this error, and the other counts as lost.
    NoSharedMemory {
        /// Which rank.
        rank: u32,
    },
    /// A rank has finished, or has [ended](crate::World#the-end) its world otherwise: it receives no further message, and sends
    /// none. Messages that it had sent before are received nevertheless.
    PeerFinished {
        /// Which rank.
        rank: u32,
        /// The tag of the message that was to be sent, or for which the receive waited. `None` for any tag.
        tag: Option<u32>,
        /// The length in bytes of the message that was to be sent. `None` for a receive or probe.
        bytes: Option<u64>,
    },
    /// A rank was restarted, and the communicator was made before: the new process is not in it. Drop the communicator, and make
    /// a new one with all ranks.
    Restarted {
        /// Which rank.
        rank: u32,
    },
    /// The message was longer than the memory to receive it. The part that fits was delivered.
    Truncated {
        /// The rank that sent the message.
        source: u32,
        /// The message's tag.
        tag: u32,
        /// The message's length in bytes.
        sent: u64,
        /// How many bytes were delivered.
        delivered: u64,
    },
    /// There is not enough memory for a message whose length the sender decided.
    NoMemory {
        /// The message's length in bytes.
        bytes: u64,
    },
    /// The receive was cancelled.
    Cancelled,
    /// A persistent operation was started before, and its outcome was not waited for.
    InProgress,
    /// A persistent operation was not started, so there is nothing to wait for.
    NotStarted,
    /// There is no such [raw request](crate::raw::RawRequest): its outcome was taken already, or it belongs to another context.
    NoRequest,
    /// A ready send found no posted receive.
    NotReady {
        /// The rank that was sent to.
        rank: u32,
    },
    /// The receiver dropped its communicator before it received the message.
    NoCommunicator {
        /// The rank of the receiver.
        rank: u32,
    },
    /// The DPU that matches the messages of this process, or that of its peer, has failed. Whether messages in progress were sent or
    /// received is not known, nor whether one-sided operations in progress were done. Later messages and later windows use the other
    /// transports. Over `dpu-frames`: the DPU of this process, or that of its peer, or the network between them has failed, and no other
    /// transport reaches the peer, which counts as lost.
    DeviceFailed,
    /// Messages of a rank were lost with a DPU that has failed: their sends were complete, and they were not received. A receive that
    /// may take messages of the rank reports that once, and takes no message.
    MessagesLost {
        /// The rank of the sender.
        rank: u32,
    },
    /// The message is longer than what the memory of the DPU that is to send or receive it has for one message.
    TooLong,
    /// The DPU of this process cannot read or write the memory of the operation directly: it is not mapped as the operation needs it, or the
    /// kernel lets no other process access it, as memory of a device. The message of a send was cut short, that of a receive is lost.
    BadMemory,
    /// The DPU of a rank cannot read the memory of the message that it has begun to send. Some of its bytes may have been delivered.
    Aborted {
        /// The rank of the sender.
        rank: u32,
    },
    /// The world was finished, or the operation belongs to another world.
    Finished,
    /// The world has no such rail.
    Rail(EnableError),
    /// This process was forked from the one to which the world belongs: see [`World`](crate::World#forks).
    Forked {
        /// The system's number of the process to which the world belongs.
        process: u32,
    },
    /// A layout cannot be built.
    Layout(LayoutError),
    /// A layout reaches beyond its buffer.
    OutOfBuffer(BoundsError),
    /// A layout contains some bytes twice, so nothing can be received into it.
    Overlap,
    /// Whether a layout contains some bytes twice could not be decided in a bounded time, so nothing can be received into it.
    UndecidedOverlap,
    /// A layout for memory of an accelerator was used with a buffer of the processor.
    OnAccelerator,
    /// A communicator cannot be made, for a reason at this rank. The other ranks get [`NoRoom`](Self::NoRoom).
    Communicator(CommError),
    /// Another rank had no room for a communicator, so no rank has made it.
    NoRoom {
        /// Which rank.
        rank: u32,
        /// What it lacked.
        why: Shortage,
    },
    /// A rank could not make its part of a window, so no rank has made the window.
    NoWindow {
        /// Which rank.
        rank: u32,
        /// What it lacked.
        why: Shortage,
    },
    /// A slice has not the length that a collective operation needs at this rank.
    WrongLength {
        /// How many items or blocks the operation needs.
        expected: usize,
        /// How many there are.
        given: usize,
    },
    /// The counts of [`blocks`](crate::blocks) do not add up to the number of items.
    WrongCounts {
        /// The sum of the counts.
        sum: usize,
        /// How many items there are.
        items: usize,
    },
    /// Ranks passed different lengths to a collective operation.
    UnequalLengths {
        /// A rank whose length is different.
        rank: u32,
        /// The length in bytes that this rank expects from it.
        expected: u64,
        /// The length in bytes there.
        sent: u64,
    },
    /// A rank could not take part in a collective operation, because of its own arguments or memory, or because of an error at a
    /// further rank.
    NoPart {
        /// Which rank.
        rank: u32,
    },
    /// A one-sided operation reaches beyond a rank's part of the window.
    OutOfWindow {
        /// The rank whose part it is.
        rank: u32,
        /// The first byte of the operation.
        offset: u64,
        /// How many bytes it accesses.
        bytes: u64,
        /// The length of the rank's part in bytes.
        len: u64,
    },
    /// The offset of an atomic operation is not a multiple of the size of its words.
    Unaligned {
        /// The rank whose part it is.
        rank: u32,
        /// The offset in bytes.
        offset: u64,
        /// The size of a word in bytes.
        word: u64,
        /// The length of the rank's part in bytes.
        len: u64,
    },
    /// A rank's part of a window begins at an address that is not a multiple of a word's size, so words of that size have no atomic
    /// operations there. Only memory of the program can begin so.
    UnalignedPart {
        /// Which rank.
        rank: u32,
        /// The size of the word in bytes.
        word: u64,
    },
    /// A rank refused a one-sided operation on its part of a window.
    Refused {
        /// Which rank.
        rank: u32,
        /// Why.
        why: Denied,
    },
    /// There is no such atomic operation on words of this type.
    NoSuchOperation {
        /// The operation: an [`AtomicOp`](crate::AtomicOp), or `CompareAndSwap`.
        operation: &'static str,
        /// The type of the words.
        word: &'static str,
    },
}

impl Error {
    /// Adds the message that was to be sent to the error of a refused send.
    pub(crate) fn of_message(self, sent_tag: u32, len: u64) -> Self {
        match self {
            Self::PeerFinished { rank, .. } => Self::PeerFinished { rank, tag: Some(sent_tag), bytes: Some(len) },
            other => other,
        }
    }

    /// The party that has to act: this program, the other rank, or the system that provides a resource.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Busy
            | Self::NoMemory { .. }
            | Self::NoSharedMemory { .. }
            | Self::NoWindow { .. }
            | Self::NoRoom { .. }
            | Self::DeviceFailed
            | Self::MessagesLost { .. }
            | Self::TooLong
            | Self::Communicator(CommError::Full | CommError::DeviceFailed) => Blame::Resource,
            Self::NoPart { .. }
            | Self::PeerFailed { .. }
            | Self::PeerFinished { .. }
            | Self::Restarted { .. }
            | Self::NoCommunicator { .. }
            | Self::Aborted { .. } => Blame::Peer,
            // The owner dropped the memory. The rights and the limits of a part are known to the caller.
            Self::Refused { why: Denied::NoMemory, .. } => Blame::Peer,
            _ => Blame::Caller,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str(
                "too many operations are in progress: wait for some of them first, or raise TOWLINE_REQUESTS",
            ),
            Self::NoSuchRank { rank, size } => {
                write!(f, "there is no rank {rank}: the communicator has {size} (numbered from 0)")
            }
            Self::NoSuchAddress(address) => {
                write!(f, "the communicator does not include {address}: use a communicator that does, such as `World::all_contexts`")
            }
            Self::NoSuchTag(tag) => {
                write!(
                    f,
                    "tag {tag} is above {}: larger tags are reserved for the library, so choose a smaller one",
                    crate::values::message::TAG_MAX
                )
            }
            Self::PeerFailed { rank } => write!(
                f,
                "rank {rank} was lost: it ended, or no connection to it is left. See its output for the reason"
            ),
            Self::NoSharedMemory { rank } => write!(
                f,
                "there is no room in shared memory for messages to or from rank {rank}, and no other transport is in use: add tcp \
                 (TOWLINE_TRANSPORTS=sm,tcp), enlarge the file system (for a container: `--shm-size`) or choose another one \
                 (TOWLINE_SM_DIRECTORY), or raise the limit of file sizes (ulimit -f). The warning of the launcher says how much is \
                 needed"
            ),
            Self::PeerFinished { rank, tag, bytes } => {
                let with_tag = tag.map_or_else(String::new, |tag| format!(" with tag {tag}"));
                match bytes {
                    Some(bytes) => write!(
                        f,
                        "rank {rank} has finished, and has not received the message of {}{with_tag}: have it receive the message before it \
                         finishes, or do not send it",
                        counted(*bytes, "byte")
                    ),
                    None => write!(
                        f,
                        "rank {rank} has finished, and has sent no further message{with_tag}: have it send one before it finishes, or \
                         do not wait for it"
                    ),
                }
            }
            Self::Restarted { rank } => write!(
                f,
                "rank {rank} was restarted after this communicator was made, and its new process is not in it: make the communicator \
                 anew, by `dup` or `split` on all ranks"
            ),
            Self::Truncated { source, tag, sent, delivered } => write!(
                f,
                "the message from rank {source} with tag {tag} has {sent} bytes, but the receive has memory for {delivered}: use a \
                 longer buffer"
            ),
            Self::NoMemory { bytes } => write!(
                f,
                "there is not enough memory to receive a message of {bytes} bytes: have its sender send it in parts"
            ),
            Self::InProgress => f.write_str("the persistent operation was started already: call its `wait` before it is started again"),
            Self::NotStarted => f.write_str("the persistent operation was not started: call its `start` first"),
            Self::Cancelled => f.write_str("the operation was cancelled by this program"),
            Self::NoRequest => f.write_str(
                "there is no such request: its outcome was taken before, or it belongs to another context. Use each request once, \
                 and with the communicator that began it",
            ),
            Self::NotReady { rank } => write!(
                f,
                "rank {rank} had no posted receive for a ready send: post the receive first, or send in standard mode"
            ),
            Self::NoCommunicator { rank } => write!(
                f,
                "rank {rank} dropped the communicator before it received the message: have it receive all messages first"
            ),
            Self::DeviceFailed => f.write_str(
                "the DPU of this process or of its peer has failed: whether the operation was done is not known, and later messages and windows \
                 use the other transports; if there is none beside dpu-frames, see the DPU's firmware, and start the job again with others \
                 beside it (TOWLINE_TRANSPORTS=tcp,dpu-frames)",
            ),
            Self::MessagesLost { rank } => write!(
                f,
                "messages that rank {rank} has sent were lost with a DPU that failed: have it send again what was not received"
            ),
            Self::TooLong => f.write_str(
                "the message is longer than what the memory of the DPU that is to send or receive it has for one message, and its firmware \
                 is too old for messages in pieces (window version 1.4): install a newer firmware, enlarge the DPU's window, or send the \
                 message in parts",
            ),
            Self::BadMemory => f.write_str(
                "the DPU cannot read or write the memory of the message: keep it mapped until the end of the operation; if it is memory of \
                 another device, set TOWLINE_DPU_HOST_MEMORY to false",
            ),
            Self::Aborted { rank } => write!(
                f,
                "the DPU of rank {rank} cannot read the memory of its message, of which a part may have been delivered: have it send the \
                 message again"
            ),
            Self::Finished => f.write_str(
                "the world was finished, or the operation belongs to another world: operations need the world that made them",
            ),
            Self::Rail(why) => why.fmt(f),
            Self::Forked { process } => write!(
                f,
                "this process was forked from process {process}, and only that one can use its world: run another program in the \
                 child (exec), or end the child"
            ),
            Self::Layout(why) => why.fmt(f),
            Self::OutOfBuffer(why) => why.fmt(f),
            Self::Overlap => f.write_str("the layout contains some bytes twice, so nothing can be received into it: use one without overlaps"),
            Self::UndecidedOverlap => f.write_str(
                "it would take too long to check whether the layout contains some bytes twice, as its interlaced parts have many \
                 different strides, so nothing can be received into it: list its runs of bytes with `Piece::bytes`, for which the \
                 check is quick, or receive into contiguous memory",
            ),
            Self::OnAccelerator => f.write_str(
                "the layout is for memory of an accelerator, but the buffer is not: make the view with `View::at` or `ViewMut::at`",
            ),
            Self::Communicator(CommError::Full) => {
                write!(f, "this rank cannot make a communicator, since {}", Shortage::Communicators)
            }
            Self::Communicator(why) => why.fmt(f),
            Self::NoRoom { rank, why } => write!(f, "no rank has made the communicator: at rank {rank}, {why}"),
            Self::NoWindow { rank, why } => write!(f, "no rank has made the window: at rank {rank}, {why}"),
            Self::WrongLength { expected, given } => write!(
                f,
                "a collective operation needs {expected} items or blocks here, but was given {given}: pass slices of the length that \
                 its documentation says"
            ),
            Self::WrongCounts { sum, items } => write!(
                f,
                "the counts of the blocks add up to {sum}, but the slice has a length of {items}: pass counts that add up to it"
            ),
            Self::UnequalLengths { rank, expected, sent } => write!(
                f,
                "rank {rank} sends {sent} bytes in a collective operation, but this rank expects {expected}: pass the same length at \
                 all ranks, and call the same operations in the same order"
            ),
            Self::NoPart { rank } => write!(
                f,
                "rank {rank} could not take part in a collective operation, because of an error there or at a further rank: see the \
                 errors of the other ranks"
            ),
            Self::OutOfWindow { rank, offset, bytes, len } => write!(
                f,
                "an operation on {} from offset {offset} on reaches beyond rank {rank}'s part of the window, which has \
                 {len} bytes: stay within `Window::len`, or make a larger window",
                counted(*bytes, "byte")
            ),
            Self::Unaligned { rank, offset, word, len } => write!(
                f,
                "an atomic operation on a word of {word} bytes at offset {offset} of rank {rank}'s part of the window, which has \
                 {len} bytes, is impossible: use an offset that is a multiple of {word}"
            ),
            Self::UnalignedPart { rank, word } => write!(
                f,
                "rank {rank}'s part of the window begins at an address that is not a multiple of {word}, so atomic operations on words \
                 of {word} bytes are impossible there: have the rank make its window over aligned memory"
            ),
            Self::Refused { rank, why: Denied::NoRight } => write!(
                f,
                "this program began an operation on rank {rank}'s part of the window without the right for it: use an operation that \
                 the rank allows, or have the rank make the window with that right (`Access`)"
            ),
            Self::Refused { rank, why: Denied::NoMemory } => write!(
                f,
                "rank {rank} has dropped its part of the window: have all ranks end the window together by `Window::close`"
            ),
            Self::Refused { rank, why } => write!(f, "rank {rank} refused a one-sided operation: {why}"),
            Self::NoSuchOperation { operation, word } => write!(
                f,
                "there is no atomic operation {operation} on words of type {word}: use words of another type, or another operation"
            ),
        }
    }
}

impl std::error::Error for Error {}

towline_core::debug_as_display!(Error);

impl From<LayoutError> for Error {
    fn from(why: LayoutError) -> Self {
        Self::Layout(why)
    }
}

impl From<BoundsError> for Error {
    fn from(why: BoundsError) -> Self {
        Self::OutOfBuffer(why)
    }
}

/// The error of an operation that owned a buffer, with the buffer.
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
    /// Why the operation failed.
    pub error: Error,
    /// The buffer. After a receive it may contain part of a message.
    pub buffer: B,
}

impl<B> fmt::Display for Failed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

/// The text of [`Display`](fmt::Display), since `main` prints an error this way.
impl<B> fmt::Debug for Failed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
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
