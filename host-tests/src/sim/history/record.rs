//! The history of a job, as its programs saw it. The checker sees nothing else.

use super::messages::{Message, Outcome, Receive, SendFailure};
use super::one_sided::{RmaOp, RmaOutcome, Window};

/// One event. Messages and receives are numbered from 0 in the order in which they were posted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// A send was posted: the next message.
    Send(Message),
    /// A send ended, perhaps with an error.
    Sent(u32, Option<SendFailure>),
    /// A receive was posted: the next receive.
    Recv(Receive),
    /// A receive ended.
    Received(u32, Outcome),
    /// The buffer of a receive at the end of the job: the [`digest`](crate::sim::history::digest) of the delivered bytes, and
    /// whether the rest of the buffer, the gaps and the guard bytes are intact.
    Buffer(u32, u64, bool),
    /// A node died, with all its operations in progress. Its later events belong to its next incarnation.
    Died(u32),
    /// Two nodes were disconnected for longer than the limit. From now on each may treat the other as failed.
    Disconnected(u32, u32),
    /// A send was refused because the peer had failed or was unknown.
    Refused {
        /// The sender.
        node: u32,
        /// The peer.
        peer: u32,
    },
    /// A node knows the present incarnation of another from now on. Its data about an earlier one is void.
    Introduced {
        /// The node.
        node: u32,
        /// The peer.
        peer: u32,
    },
    /// A node has registered memory: the next window.
    Window(Window),
    /// A window was closed. No operation that begins later may be done.
    WindowClosed(u32),
    /// The content of a window, when nothing may change it any more.
    Memory(u32, Vec<u8>),
    /// A one-sided operation was begun: the next one.
    RmaBegun(RmaOp),
    /// A one-sided operation ended.
    RmaEnded(u32, RmaOutcome),
    /// The use of a resource at the start and at the end of the job.
    Level {
        /// The node.
        node: u32,
        /// The resource.
        what: &'static str,
        /// Use at the start.
        before: u64,
        /// Use at the end.
        after: u64,
    },
}

/// The events of a job, in order.
#[derive(Clone, Default, Debug)]
pub struct History {
    /// The events.
    pub records: Vec<Record>,
    sends: u32,
    receives: u32,
    windows: u32,
    rma_ops: u32,
}

impl History {
    /// Records a posted send. Returns its number.
    pub fn send(&mut self, message: Message) -> u32 {
        self.records.push(Record::Send(message));
        self.sends += 1;
        self.sends - 1
    }

    /// The number of the next posted send.
    pub fn next_send(&self) -> u32 {
        self.sends
    }

    /// A posted send, by its number.
    pub fn sent(&self, number: u32) -> Option<&Message> {
        let sends = self.records.iter().filter_map(|record| match record {
            Record::Send(message) => Some(message),
            _ => None,
        });
        sends.into_iter().nth(number as usize)
    }

    /// Records a posted receive. Returns its number.
    pub fn recv(&mut self, receive: Receive) -> u32 {
        self.records.push(Record::Recv(receive));
        self.receives += 1;
        self.receives - 1
    }

    /// Records a window. Returns its number.
    pub fn window(&mut self, window: Window) -> u32 {
        self.records.push(Record::Window(window));
        self.windows += 1;
        self.windows - 1
    }

    /// The number of the next one-sided operation.
    pub fn next_rma_op(&self) -> u32 {
        self.rma_ops
    }

    /// Records a one-sided operation that was begun. Returns its number.
    pub fn rma_op(&mut self, op: RmaOp) -> u32 {
        self.records.push(Record::RmaBegun(op));
        self.rma_ops += 1;
        self.rma_ops - 1
    }

    /// Records any other event.
    pub fn note(&mut self, record: Record) {
        let numbered = matches!(record, Record::Send(_) | Record::Recv(_) | Record::Window(_) | Record::RmaBegun(_));
        debug_assert!(!numbered);
        self.records.push(record);
    }
}
