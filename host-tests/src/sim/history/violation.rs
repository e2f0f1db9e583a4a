//! Violations, and the summary of a check.

use std::fmt;

use super::messages::{MODES, Message, Outcome, Receive, SendFailure};
use super::one_sided::{RmaOp, RmaOutcome};

/// A violation in the history of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// A send or receive completed twice.
    CompletedTwice(&'static str, u32),
    /// A send or receive did not complete, or was never posted.
    NotCompleted(&'static str, u32),
    /// A send failed.
    SendFailed(u32, SendFailure),
    /// A receive failed because of a node that had not failed, or that is not its source.
    FalseFailure(u32, Receive, u32),
    /// A send was refused because of a node that had not failed.
    FalseRefusal(u32, u32),
    /// A synchronous send succeeded, but no receive can have matched it.
    Unmatched(u32, Message),
    /// A receive got a message that does not match it.
    WrongMatch(u32, Receive, Outcome),
    /// A receive got a message that was not sent, or that another receive had taken.
    NoSuchMessage(u32, Receive, Outcome),
    /// A receive got a message although another one should have come first.
    WrongOrder {
        /// The receive.
        receive: u32,
        /// Its outcome.
        outcome: Outcome,
        /// The message that should have come first.
        first: u32,
    },
    /// A receive completed before its message was sent.
    ReceivedBeforeSent(u32),
    /// A length is wrong, or a truncation was reported wrongly.
    WrongLength(u32, Message, Outcome),
    /// The bytes are not those of the message. The last number is the message to which they belong, if any.
    WrongBytes(u32, u32, Option<u32>),
    /// The buffer of a receive was written to after its end.
    WrittenAfterEnd(u32),
    /// Bytes outside the buffer of a receive were written to.
    Overrun(u32),
    /// A synchronous send completed before its receive was posted.
    NotSynchronous(u32, u32),
    /// A message was never received.
    Lost(u32, Message),
    /// A violation by a one-sided operation.
    OneSided(RmaViolation),
    /// A resource was not released.
    Leaked(u32, &'static str, u64, u64),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CompletedTwice(what, number) => write!(f, "{what} {number} completed twice"),
            Self::NotCompleted(what, number) => write!(f, "{what} {number} was not posted or did not complete"),
            Self::SendFailed(send, why) => write!(f, "send {send} failed: {why:?}"),
            Self::FalseFailure(receive, posted, node) => {
                write!(f, "receive {receive}, {posted:?}, failed because of node {node}, which was alive")
            }
            Self::FalseRefusal(node, peer) => {
                write!(f, "a send of node {node} to node {peer} was refused, but that node was alive")
            }
            Self::Unmatched(send, message) => {
                write!(f, "synchronous send {send}, {message:?}, succeeded, but was not received")
            }
            Self::WrongMatch(receive, posted, got) => write!(f, "receive {receive}, {posted:?}, matched {got:?}"),
            Self::NoSuchMessage(receive, posted, got) => {
                write!(
                    f,
                    "receive {receive}, {posted:?}, got a message that was not sent or that another receive had taken: {got:?}"
                )
            }
            Self::WrongOrder { receive, outcome, first } => {
                write!(f, "receive {receive} got {outcome:?} although message {first} should come first")
            }
            Self::ReceivedBeforeSent(receive) => write!(f, "receive {receive} completed before its message was sent"),
            Self::WrongLength(receive, message, got) => {
                write!(f, "receive {receive} of {message:?} ended with {got:?}")
            }
            Self::WrongBytes(receive, message, other) => {
                write!(f, "receive {receive} got bytes that are not those of message {message}")?;
                other.map_or(Ok(()), |other| write!(f, ": those of message {other}"))
            }
            Self::WrittenAfterEnd(receive) => {
                write!(f, "the buffer of receive {receive} was written to after the receive had ended")
            }
            Self::Overrun(receive) => write!(f, "receive {receive} wrote outside its buffer"),
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

/// Counts of checked events.
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
    /// Messages from or to failed nodes that were not received.
    pub lost: u64,
    /// Receives that were truncated.
    pub truncated: u64,
    /// Receives from any source or with any tag.
    pub wildcards: u64,
    /// One-sided operations that were done.
    pub one_sided: u64,
    /// One-sided operations that were denied.
    pub denied: u64,
    /// Messages by mode, in the order of [`MODES`].
    pub modes: [u64; MODES.len()],
    /// Messages by size, in the classes of [`SIZES`] and beyond.
    pub sizes: [u64; SIZES.len() + 1],
}

/// Upper bounds of the size classes in bytes: empty, fits the head of a frame, always copied, and one more.
pub const SIZES: [u64; 4] = [0, 56, 4096, 65_536];

impl Summary {
    /// Adds another summary.
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

/// A violation by a one-sided operation, or in the content of a window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RmaViolation {
    /// An operation did not complete exactly once.
    NotCompletedOnce(u32, RmaOp),
    /// An operation had an outcome without a cause.
    WrongOutcome(u32, RmaOp, RmaOutcome),
    /// A get returned wrong bytes.
    Bytes(u32, RmaOp),
    /// Two operations returned the same value, or an operation returned a value that was replaced before it began, or
    /// its own value: an operation was done twice or not at all.
    Found(u32, RmaOp, u64),
    /// The sum of a counter does not fit the number of operations that were done and of uncertain ones.
    Sum(u32, u64, usize, u64),
    /// The value of the cell was not the last one written.
    Cell(u32, u64),
    /// A byte was never written, or changed when nothing might change it any more.
    Memory(u32, u64),
}

impl fmt::Display for RmaViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotCompletedOnce(number, op) => write!(f, "operation {number}, {op:?}, did not end once"),
            Self::WrongOutcome(number, op, ended) => write!(f, "operation {number}, {op:?}, ended with {ended:?}"),
            Self::Bytes(number, op) => {
                write!(f, "operation {number}, {op:?}, returned other bytes than the last put wrote")
            }
            Self::Found(number, op, old) => {
                write!(f, "operation {number}, {op:?}, returned {old}: an operation was done twice, or not at all")
            }
            Self::Sum(window, sum, done, uncertain) => {
                write!(
                    f,
                    "window {window}: a counter is {sum} after {done} operations, and {uncertain} that may have been done"
                )
            }
            Self::Cell(window, value) => {
                write!(f, "window {window}: {value} was in the cell, but is not the value that was written last")
            }
            Self::Memory(window, at) => write!(f, "window {window}: byte {at} is not the one that was written last"),
        }
    }
}
