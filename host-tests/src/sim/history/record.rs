//! What a job did, as its programs saw it: the only thing that the checker judges by.

use super::messages::{Message, Outcome, Receive, SendFailure};
use super::one_sided::{RmaOp, RmaOutcome, Window};

/// One thing that happened. Messages and receives go by the order in which they were posted: numbers from 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Record {
    /// A send was posted: the next message.
    Send(Message),
    /// A send ended; with what error, if any.
    Sent(u32, Option<SendFailure>),
    /// A receive was posted: the next receive.
    Recv(Receive),
    /// A receive ended.
    Received(u32, Outcome),
    /// The room of a receive at the end of the job: [`digest`](crate::sim::history::digest) of what was delivered, and whether the rest of the room,
    /// the gaps and the bytes around it are untouched.
    Buffer(u32, u64, bool),
    /// A node died, with all that it had under way. What it does from then on, it does in another life.
    Died(u32),
    /// Two nodes were cut off from each other beyond the limit: each may take the other for failed from now on.
    Disconnected(u32, u32),
    /// A send was refused because that node had failed, or was not known.
    Refused {
        /// Who asked.
        node: u32,
        /// To whom.
        peer: u32,
    },
    /// A node knows another by its present life from now on; what it knew before is void.
    Introduced {
        /// Who knows.
        node: u32,
        /// Whom.
        peer: u32,
    },
    /// A node has registered memory for others: the next window.
    Window(Window),
    /// It takes a window back: nothing that is asked from then on may be done.
    WindowClosed(u32),
    /// What is in the memory of a window, when nothing may happen to it any more.
    Memory(u32, Vec<u8>),
    /// A one-sided operation was begun: the next one.
    RmaBegun(RmaOp),
    /// It is over.
    RmaEnded(u32, RmaOutcome),
    /// What is taken of something at the start of the job and at its end.
    Level {
        /// Where.
        node: u32,
        /// Of what.
        what: &'static str,
        /// Taken at the start.
        before: u64,
        /// Taken at the end.
        after: u64,
    },
}

/// The job, in the order in which things happened.
#[derive(Clone, Default, Debug)]
pub struct History {
    /// What happened.
    pub records: Vec<Record>,
    sends: u32,
    receives: u32,
    windows: u32,
    rma_ops: u32,
}

impl History {
    /// Notes a posted send; its number.
    pub fn send(&mut self, message: Message) -> u32 {
        self.records.push(Record::Send(message));
        self.sends += 1;
        self.sends - 1
    }

    /// The number that the next posted send will have.
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

    /// Notes a posted receive; its number.
    pub fn recv(&mut self, receive: Receive) -> u32 {
        self.records.push(Record::Recv(receive));
        self.receives += 1;
        self.receives - 1
    }

    /// Notes a window; its number.
    pub fn window(&mut self, window: Window) -> u32 {
        self.records.push(Record::Window(window));
        self.windows += 1;
        self.windows - 1
    }

    /// The number that the next one-sided operation will have.
    pub fn next_rma_op(&self) -> u32 {
        self.rma_ops
    }

    /// Notes a one-sided operation that was begun; its number.
    pub fn rma_op(&mut self, op: RmaOp) -> u32 {
        self.records.push(Record::RmaBegun(op));
        self.rma_ops += 1;
        self.rma_ops - 1
    }

    /// Notes anything else.
    pub fn note(&mut self, record: Record) {
        let numbered = matches!(record, Record::Send(_) | Record::Recv(_) | Record::Window(_) | Record::RmaBegun(_));
        debug_assert!(!numbered);
        self.records.push(record);
    }
}
