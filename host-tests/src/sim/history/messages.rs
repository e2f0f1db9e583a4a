//! Messages, receives and how they ended.

/// How a send was asked for; mirrors the engine's modes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// `MPI_Send`.
    Standard,
    /// `MPI_Bsend`, with memory that stays.
    Buffered,
    /// `MPI_Ssend`.
    Synchronous,
    /// `MPI_Rsend`.
    Ready,
    /// The MTL's own.
    Complete,
}

/// All of them.
pub const MODES: [Mode; 5] = [Mode::Standard, Mode::Buffered, Mode::Synchronous, Mode::Ready, Mode::Complete];

/// A message, as its sender posted it. Its bytes are [`pattern`](crate::pattern::pattern) of its number.
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
    /// Who posted it.
    pub at: u32,
    /// Communicator.
    pub comm: u32,
    /// From whom; `None` from anyone.
    pub source: Option<u32>,
    /// Which tag; `None` for any below [`RESERVED`].
    pub tag: Option<u32>,
    /// Bytes of room.
    pub room: u64,
}

/// Tags from here on are not matched by a receive of any tag.
pub const RESERVED: u32 = 0x8000_0000;

/// How a receive ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// With a message.
    Received {
        /// Its sender.
        source: u32,
        /// Its tag.
        tag: u32,
        /// Its bytes.
        received: u64,
        /// Those that were put into the room.
        delivered: u64,
        /// Whether that was reported as an error.
        truncated: bool,
        /// [`digest`](crate::sim::history::digest) of the delivered bytes when the receive ended.
        digest: u64,
    },
    /// It was cancelled.
    Cancelled,
    /// That node failed.
    PeerFailed(u32),
}

/// Why a send did not go well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SendFailure {
    /// That node failed.
    Peer(u32),
    /// Something else.
    Other(String),
}
