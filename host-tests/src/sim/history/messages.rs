//! Messages, receives, and their outcomes.

/// The mode of a send, as in the engine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// `MPI_Send`.
    Standard,
    /// `MPI_Bsend`, with memory that stays valid.
    Buffered,
    /// `MPI_Ssend`.
    Synchronous,
    /// `MPI_Rsend`.
    Ready,
    /// The mode `Complete` of the MTL.
    Complete,
}

/// All modes.
pub const MODES: [Mode; 5] = [Mode::Standard, Mode::Buffered, Mode::Synchronous, Mode::Ready, Mode::Complete];

/// A message, as its sender posted it. Its bytes are the [`pattern`](crate::pattern::pattern) of its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Communicator.
    pub comm: u32,
    /// Tag.
    pub tag: u32,
    /// Bytes.
    pub len: u64,
    /// Mode.
    pub mode: Mode,
}

/// A receive, or a matched probe, as it was posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receive {
    /// The node that posted it.
    pub at: u32,
    /// Communicator.
    pub comm: u32,
    /// The source, or `None` for any source.
    pub source: Option<u32>,
    /// The tag, or `None` for any tag below [`RESERVED`].
    pub tag: Option<u32>,
    /// Bytes of the buffer.
    pub buffer: u64,
}

/// Tags from here on are not matched by a receive of any tag.
pub const RESERVED: u32 = 0x8000_0000;

/// The outcome of a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It received a message.
    Received {
        /// Its sender.
        source: u32,
        /// Its tag.
        tag: u32,
        /// Its length in bytes.
        received: u64,
        /// Bytes that were written to the buffer.
        delivered: u64,
        /// Whether a truncation was reported.
        truncated: bool,
        /// [`digest`](crate::sim::history::digest) of the delivered bytes when the receive ended.
        digest: u64,
    },
    /// It was cancelled.
    Cancelled,
    /// The peer failed.
    PeerFailed(u32),
}

/// Why a send failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SendFailure {
    /// The peer failed.
    Peer(u32),
    /// Another error.
    Other(String),
}
