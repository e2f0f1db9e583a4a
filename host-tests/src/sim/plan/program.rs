//! What the programs of a job are made of.

use crate::sim::history::{Message, Receive};

/// A tag that nobody sends with.
pub const NEVER: u32 = 0x7000_0000;

/// What a job is like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Nodes.
    pub nodes: u32,
    /// Messages at least.
    pub messages: usize,
    /// Sends and receives that a node has under way at most.
    pub window: u32,
    /// Bytes of a message at most.
    pub longest: u64,
    /// Communicators for the whole job.
    pub comms: u32,
    /// And some for a part of it.
    pub wild: bool,
}

/// What a node does next.
#[derive(Clone, Debug)]
pub enum Step {
    /// Begins a send, once the given receives are posted.
    Send(u32, Vec<u32>),
    /// Posts a receive.
    Recv(u32, Cancel),
    /// Probes until a message is there, then receives it.
    Probe(u32),
    /// Probes until a message is taken, then receives that one.
    MatchedProbe(u32),
    /// Posts a receive for which nothing comes, and cancels it.
    CancelledRecv(u32),
    /// Probes once, whatever comes of it.
    ProbeOnce(u32),
    /// Computes so many nanoseconds, without a call to the engine.
    Compute(u64),
    /// Makes a communicator.
    CreateComm(u32),
    /// Waits for all that is under way, then deletes a communicator.
    DeleteComm(u32),
}

/// Whether a receive is cancelled, and posted again if that took it back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cancel {
    /// It is not.
    Never,
    /// At once.
    Now,
    /// A while later.
    Later,
}

/// A communicator.
#[derive(Clone, Debug)]
pub struct Comm {
    /// Its context.
    pub context: u32,
    /// The node of each rank; `None` where rank and node are the same.
    pub table: Option<Vec<u32>>,
    /// Which rules hold on it.
    pub style: Style,
}

/// See the [module](super).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// Sources are named.
    NamedSources,
    /// A tag is of one block.
    GroupedTags,
    /// All of it is of one block.
    Wildcards,
}

/// A program for each node.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// All messages. A step names them by index.
    pub messages: Vec<Message>,
    /// All receives. A step names them by index.
    pub receives: Vec<Receive>,
    /// All communicators.
    pub comms: Vec<Comm>,
    /// The first of them exist from the beginning.
    pub permanent: u32,
    /// The programs.
    pub programs: Vec<Vec<Step>>,
}
