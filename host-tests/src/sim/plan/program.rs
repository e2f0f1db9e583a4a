//! The steps, communicators and programs of a plan.

use crate::sim::history::{Message, Receive};

/// A tag with which nothing is sent.
pub const NEVER: u32 = 0x7000_0000;

/// The size of a job.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Nodes.
    pub nodes: u32,
    /// Least number of messages.
    pub messages: usize,
    /// Most sends and receives that a node has in progress.
    pub window: u32,
    /// Most bytes of a message.
    pub longest: u64,
    /// Number of communicators for the whole job.
    pub comms: u32,
    /// Whether there are also communicators for a part of the job.
    pub wild: bool,
}

/// A step of a program.
#[derive(Clone, Debug)]
pub enum Step {
    /// Begins a send, after the given receives have been posted.
    Send(u32, Vec<u32>),
    /// Posts a receive.
    Recv(u32, Cancel),
    /// Probes until there is a message, then receives it.
    Probe(u32),
    /// Uses matched probes until there is a message, then receives it.
    MatchedProbe(u32),
    /// Posts a receive for which there is no message, and cancels it.
    CancelledRecv(u32),
    /// Probes once, whatever the result.
    ProbeOnce(u32),
    /// Computes for this many nanoseconds, without calling the engine.
    Compute(u64),
    /// Creates a communicator.
    CreateComm(u32),
    /// Waits for all operations in progress, then deletes a communicator.
    DeleteComm(u32),
}

/// Whether a receive is cancelled. It is posted again if the cancellation succeeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cancel {
    /// It is not cancelled.
    Never,
    /// It is cancelled at once.
    Now,
    /// It is cancelled some time later.
    Later,
}

/// A communicator.
#[derive(Clone, Debug)]
pub struct Comm {
    /// Its context.
    pub context: u32,
    /// The node of each rank; `None` where rank and node are the same.
    pub table: Option<Vec<u32>>,
    /// The matching rules of its messages.
    pub style: Style,
}

/// The matching rules of a communicator: see `generator`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// Receives name their source.
    NamedSources,
    /// A tag belongs to one block.
    GroupedTags,
    /// The communicator belongs to one block.
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
    /// Number of communicators that exist from the beginning. They are the first ones.
    pub permanent: u32,
    /// The programs.
    pub programs: Vec<Vec<Step>>,
}
