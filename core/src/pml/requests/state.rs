//! What is kept of a request: one slot for each operation under way.

use zerocopy::FromZeros;

use crate::convertor::Span;
use crate::rail::{Peer, ShortBody};

/// Where a request stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromZeros)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Over; the outcome waits to be taken.
    Done,
    /// A send whose first fragment has not left.
    Held,
    /// A send that waits for ack, finish or reject.
    Waiting,
    /// A send whose rest is leaving.
    Streaming,
    /// A send of which all was handed to rails, which still read its memory or have not drained.
    Leaving,
    /// A receive without a match.
    Posted,
    /// A receive to be, of a message that a matched probe took. Its outcome says whether the sender was lost since.
    Taken,
    /// A matched receive whose bytes are coming.
    Receiving,
    /// A matched receive that has yet to tell its sender so.
    Responding,
}

/// How a request ended, with [`Failure`]'s variants.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromZeros)]
#[repr(u8)]
pub(crate) enum Outcome {
    Success,
    Cancelled,
    PeerFailed,
    Restarted,
    NotReady,
    NoCommunicator,
}

/// Free the request when it is done, nobody asks for its outcome.
pub(crate) const DETACHED: u8 = 0x01;

/// Announce the request among the completed ones when it is done.
pub(crate) const NOTIFY: u8 = 0x02;

/// Done only when the rail has drained.
pub(crate) const DRAIN: u8 = 0x04;

/// Must not go eagerly; with `READY` it must find a posted receive.
pub(crate) const SYNCHRONOUS: u8 = 0x08;

/// Sent in ready mode.
pub(crate) const READY: u8 = 0x10;

/// A receive that `Posted` has. No receive is sent in any mode.
pub(crate) const ORDERED: u8 = READY;

/// The first fragment went out as an answer and is not settled.
pub(crate) const ANSWERING: u8 = 0x20;

/// A receive.
pub(crate) const RECEIVE: u8 = 0x40;

/// In the active list.
pub(crate) const ACTIVE: u8 = 0x80;

/// [`RequestState::stand`] of a receive that is posted, and of one that has succeeded, where nobody wants to be told of it.
const POSTED: u32 = u32::from_le_bytes([Phase::Posted as u8, Outcome::Success as u8, RECEIVE, 0]);

const RECEIVED: u32 = u32::from_le_bytes([Phase::Done as u8, Outcome::Success as u8, RECEIVE, 0]);

/// One operation under way.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct RequestState {
    pub phase: Phase,
    pub outcome: Outcome,
    pub flags: u8,
    /// The rail in whose cache a send has an entry.
    pub cached_by: u8,
    /// Other side; for a receive the matched sender.
    pub peer: u32,
    pub context: u32,
    pub tag: u32,
    /// The user's memory.
    pub span: Span,
    /// Bytes of the message.
    pub total: u64,
    /// Bytes of it that the receiver takes; where it takes them one by one.
    pub wanted: u64,
    /// Bytes that were handed to rails, or that arrived.
    pub moved: u64,
    /// The other side's handle; while a receive is posted, its posting number.
    pub remote: u64,
    /// Frames that a rail still reads from or writes to the user's memory.
    pub inflight: u32,
    /// Links of the one list that the request is in, as index plus one; while a receive is posted, of `Posted`.
    pub next: u32,
    pub prev: u32,
    /// A send's entry in that cache, plus one; 0 where it is uncached. A receive's link upwards in `Posted`.
    pub cached: u32,
}

impl RequestState {
    /// Phase, outcome, flags and `cached_by` in one word: to be compared at once.
    #[inline(always)]
    const fn status_word(&self) -> u32 {
        u32::from_le_bytes([self.phase as u8, self.outcome as u8, self.flags, self.cached_by])
    }

    /// The request becomes a posted receive.
    #[inline(always)]
    pub fn post(&mut self) {
        self.phase = Phase::Posted;
        self.outcome = Outcome::Success;
        self.flags = RECEIVE;
        self.cached_by = 0;
    }

    /// Takes a short message whole.
    ///
    /// # Safety
    /// As [`ShortBody::deliver`], to the sink of the receive.
    #[inline(always)]
    pub unsafe fn receive(&mut self, from: Peer, tag: u32, body: ShortBody) {
        (self.peer, self.tag) = (from.0, tag);
        self.total = body.len() as u64;
        // SAFETY: passed on from the caller.
        unsafe { body.deliver(&self.span) };
    }

    /// Whether it is a posted receive at whose end nothing is to be done but to wait for whoever takes its outcome.
    #[inline(always)]
    pub const fn is_plain(&self) -> bool {
        self.status_word() == POSTED
    }

    /// A receive has succeeded that has no other flag.
    #[inline(always)]
    pub fn succeed(&mut self) {
        // The whole word, as it will be read: a processor passes a store on to a load that follows soon only where the load
        // wants no more than the store had. Else it waits until the store is done, and with it all stores before.
        self.phase = Phase::Done;
        self.outcome = Outcome::Success;
        self.flags = RECEIVE;
        self.cached_by = 0;
    }

    /// Whether it is a receive that got all of its message and is in no list.
    #[inline(always)]
    pub const fn has_succeeded(&self) -> bool {
        self.status_word() == RECEIVED && self.total <= self.span.len()
    }

    /// Bytes of the message that a receive takes.
    #[inline]
    pub fn fits(&self) -> u64 {
        self.total.min(self.span.len())
    }

    /// The request is over; what else that brings is the affair of [`is_awaited`](Self::is_awaited).
    #[inline]
    pub fn finish(&mut self, outcome: Outcome) {
        if outcome == Outcome::Success && self.flags == RECEIVE {
            return self.succeed();
        }
        self.phase = Phase::Done;
        self.outcome = outcome;
    }

    /// Whether more is to be done at the request's end than to wait for whoever takes its outcome.
    #[inline]
    pub const fn is_awaited(&self) -> bool {
        self.flags & (DETACHED | NOTIFY) != 0 || self.cached != 0
    }
}

/// In `RequestState::remote` of a send that waits: it is lent.
pub(in crate::pml) const LENT: u64 = 1;

/// In `RequestState::remote` of a send that waits: the memory that it was offered found no slot.
pub(in crate::pml) const DECLINES_DEVICE: u64 = 2;
