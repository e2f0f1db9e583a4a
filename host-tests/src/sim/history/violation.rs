//! What a job may do wrong, and what was checked.

use std::fmt;

use super::messages::{MODES, Message, Outcome, Receive, SendFailure};
use super::one_sided::{RmaOp, RmaOutcome};

/// What a job did wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// A send or receive ended twice.
    CompletedTwice(&'static str, u32),
    /// A send or receive never ended, or was never posted.
    NotCompleted(&'static str, u32),
    /// A send failed.
    SendFailed(u32, SendFailure),
    /// A receive ended with the failure of a node that had not failed, or that it does not name.
    FalseFailure(u32, Receive, u32),
    /// A send was refused because of a node that had not failed.
    FalseRefusal(u32, u32),
    /// A synchronous send ended well, and no receive can have matched it.
    Unmatched(u32, Message),
    /// A receive ended with a message that its pattern does not match.
    WrongMatch(u32, Receive, Outcome),
    /// A receive ended with a message that was not sent, or not any more.
    NoSuchMessage(u32, Receive, Outcome),
    /// A receive ended with a message although another goes first.
    WrongOrder {
        /// The receive.
        receive: u32,
        /// What it got.
        outcome: Outcome,
        /// The message that goes first.
        first: u32,
    },
    /// A receive ended before its message was sent.
    ReceivedBeforeSent(u32),
    /// Lengths do not add up, or a truncation was reported wrongly.
    WrongLength(u32, Message, Outcome),
    /// The bytes are not those of the message; the number is of the message they belong to, if any.
    WrongBytes(u32, u32, Option<u32>),
    /// The room of a receive was written to after its end.
    WrittenAfterEnd(u32),
    /// Bytes outside of the room of a receive were written to.
    Overrun(u32),
    /// A synchronous send ended before its receive was posted.
    NotSynchronous(u32, u32),
    /// A message that nobody received.
    Lost(u32, Message),
    /// Something is wrong with one-sided operations.
    OneSided(RmaViolation),
    /// Something was not given back.
    Leaked(u32, &'static str, u64, u64),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CompletedTwice(what, number) => write!(f, "{what} {number} ended twice"),
            Self::NotCompleted(what, number) => write!(f, "{what} {number} was not posted or did not end"),
            Self::SendFailed(send, why) => write!(f, "send {send} failed: {why:?}"),
            Self::FalseFailure(receive, posted, node) => {
                write!(f, "receive {receive}, {posted:?}, ended with the failure of node {node}, which was there")
            }
            Self::FalseRefusal(node, peer) => write!(f, "node {node} may not send to node {peer}, which is there"),
            Self::Unmatched(send, message) => {
                write!(f, "synchronous send {send}, {message:?}, ended well, and nobody received it")
            }
            Self::WrongMatch(receive, posted, got) => write!(f, "receive {receive}, {posted:?}, matched {got:?}"),
            Self::NoSuchMessage(receive, posted, got) => {
                write!(f, "receive {receive}, {posted:?}, got a message that nobody sent or somebody else got: {got:?}")
            }
            Self::WrongOrder { receive, outcome, first } => {
                write!(f, "receive {receive} got {outcome:?} although message {first} goes first")
            }
            Self::ReceivedBeforeSent(receive) => write!(f, "receive {receive} ended before its message was sent"),
            Self::WrongLength(receive, message, got) => {
                write!(f, "receive {receive} of {message:?} ended with {got:?}")
            }
            Self::WrongBytes(receive, message, other) => {
                write!(f, "receive {receive} got other bytes than those of message {message}")?;
                other.map_or(Ok(()), |other| write!(f, ": those of message {other}"))
            }
            Self::WrittenAfterEnd(receive) => write!(f, "the room of receive {receive} was written to after its end"),
            Self::Overrun(receive) => write!(f, "receive {receive} wrote outside of its room"),
            Self::NotSynchronous(send, receive) => {
                write!(f, "synchronous send {send} ended before receive {receive} was posted")
            }
            Self::Lost(message, what) => write!(f, "message {message}, {what:?}, was never received"),
            Self::OneSided(wrong) => write!(f, "{wrong}"),
            Self::Leaked(node, what, before, after) => write!(f, "node {node}: {what} were {before} and are {after}"),
        }
    }
}

impl From<RmaViolation> for Violation {
    fn from(wrong: RmaViolation) -> Self {
        Self::OneSided(wrong)
    }
}

/// What was checked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// Messages sent and received.
    pub messages: u64,
    /// Bytes compared.
    pub bytes: u64,
    /// Receives that were cancelled.
    pub cancelled: u64,
    /// Sends and receives that ended with the failure of a node.
    pub failed: u64,
    /// Messages of nodes that failed, or to them, that nobody received.
    pub lost: u64,
    /// Receives that were truncated.
    pub truncated: u64,
    /// Receives from anyone or of any tag.
    pub wildcards: u64,
    /// One-sided operations that were done.
    pub one_sided: u64,
    /// Those that were denied.
    pub denied: u64,
    /// Messages by mode, in the order of [`MODES`].
    pub modes: [u64; MODES.len()],
    /// Messages by size, in the classes of [`SIZES`] and beyond.
    pub sizes: [u64; SIZES.len() + 1],
}

/// Bytes up to which the messages of each class go: none, what fits a frame's head, what is always copied, more.
pub const SIZES: [u64; 4] = [0, 56, 4096, 65_536];

impl Summary {
    /// Adds what was checked elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.cancelled += other.cancelled;
        self.failed += other.failed;
        self.lost += other.lost;
        self.truncated += other.truncated;
        self.wildcards += other.wildcards;
        self.one_sided += other.one_sided;
        self.denied += other.denied;
        self.modes.iter_mut().zip(other.modes).for_each(|(sum, count)| *sum += count);
        self.sizes.iter_mut().zip(other.sizes).for_each(|(sum, count)| *sum += count);
    }
}

/// What an operation, or what is left in a window, shows to be wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RmaViolation {
    /// An operation never ended, or twice.
    NotCompletedOnce(u32, RmaOp),
    /// It ended in a way that nothing gave cause to.
    WrongOutcome(u32, RmaOp, RmaOutcome),
    /// A get brought other bytes than those that are there.
    Bytes(u32, RmaOp),
    /// Two operations found the same, one found what was gone before it began, or one found what it has made itself: something
    /// was done twice, or not at all.
    Found(u32, RmaOp, u64),
    /// So many were added to a counter, of so many operations that ended well and so many of which nobody knows.
    Sum(u32, u64, usize, u64),
    /// What is in the cell was not put there last.
    Cell(u32, u64),
    /// Bytes that nobody has put there, or that changed when nothing more was to happen.
    Memory(u32, u64),
}

impl fmt::Display for RmaViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotCompletedOnce(number, ask) => write!(f, "operation {number}, {ask:?}, did not end once"),
            Self::WrongOutcome(number, ask, ended) => write!(f, "operation {number}, {ask:?}, ended with {ended:?}"),
            Self::Bytes(number, ask) => {
                write!(f, "operation {number}, {ask:?}, brought other bytes than those put there")
            }
            Self::Found(number, ask, old) => {
                write!(f, "operation {number}, {ask:?}, found {old}: something was done twice, or not at all")
            }
            Self::Sum(window, sum, done, uncertain) => {
                write!(
                    f,
                    "window {window}: {sum} were added by {done} operations, and {uncertain} of which nobody knows"
                )
            }
            Self::Cell(window, value) => write!(f, "window {window}: {value} in the cell was not put there last"),
            Self::Memory(window, at) => write!(f, "window {window}: byte {at} is not what was put there"),
        }
    }
}
