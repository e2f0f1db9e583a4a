//! Requests: one slot for each operation under way, and the lists that link them.

use core::fmt;

use zerocopy::FromZeros;

use crate::convertor::Span;
use crate::error::Blame;
use crate::pool::{Handle, Pool};
use crate::rail::{Peer, ShortBody};

/// How a send relates to its receive (MPI 4.1, section 3.4, and the MTL's COMPLETE).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Mode {
    /// Complete when the memory may be reused; a short message may have been copied.
    #[default]
    Standard,
    /// As standard. Who needs the copy of a buffered send gives the engine memory that stays until completion.
    Buffered,
    /// Complete when the receive has matched.
    Synchronous,
    /// A receive is posted already; without one the send fails with [`Failure::NotReady`].
    Ready,
    /// Complete when the message is with the device, and not before: nothing is left to later progress.
    Complete,
}

/// Names an operation under way, until its outcome is taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Request(pub(crate) Handle);

impl Request {
    /// As a word, for callers that keep requests in memory of their own (CONTRACTS M11).
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The request of a word; one that was never given out is refused wherever it is used.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(Handle::from_bits(bits))
    }
}

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Status {
    /// The other side.
    pub peer: Peer,
    /// The message's tag.
    pub tag: u32,
    /// Bytes of the message as it was sent (`bytes_received` of the contract).
    pub received: u64,
    /// Bytes that are in the receiver's memory (`bytes_delivered`): fewer where the message was truncated.
    pub delivered: u64,
}

/// Why an operation ended without success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Failure {
    /// The message was longer than the memory of the receive; what fits was delivered.
    Truncated(Status),
    /// The receive was cancelled before it matched.
    Cancelled,
    /// The peer was lost.
    PeerFailed(Peer),
    /// The peer was lost and is back since the communicator was made: what is there now is not in it.
    Restarted(Peer),
    /// A ready send found no posted receive.
    NotReady(Peer),
    /// The receiver had deleted the communicator.
    NoCommunicator(Peer),
    /// No such request: its outcome was taken already, or it was never given out.
    NoRequest,
}

impl Failure {
    /// Who has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::PeerFailed(_) | Self::Restarted(_) | Self::NoCommunicator(_) => Blame::Peer,
            _ => Blame::Caller,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated(status) => write!(
                f,
                "the message from peer {} with tag {} has {} bytes, the receive took {}: post a larger one",
                status.peer.0, status.tag, status.received, status.delivered
            ),
            Self::Cancelled => f.write_str("the receive was cancelled"),
            Self::PeerFailed(peer) => write!(f, "peer {} was lost", peer.0),
            Self::Restarted(peer) => say_restarted(f, *peer),
            Self::NotReady(peer) => {
                write!(
                    f,
                    "peer {} had posted no receive for a ready send: post it first, or send in standard mode",
                    peer.0
                )
            }
            Self::NoCommunicator(peer) => write!(f, "peer {} had deleted the communicator", peer.0),
            Self::NoRequest => f.write_str("no such request: its outcome was taken already, or it never was"),
        }
    }
}

impl core::error::Error for Failure {}

pub(super) fn say_restarted(f: &mut fmt::Formatter<'_>, peer: Peer) -> fmt::Result {
    write!(f, "peer {} was lost and is back since the communicator was made: make the communicator anew", peer.0)
}

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

/// [`State::stand`] of a receive that is posted, and of one that has succeeded, where nobody wants to be told of it.
const POSTED: u32 = u32::from_le_bytes([Phase::Posted as u8, Outcome::Success as u8, RECEIVE, 0]);
const RECEIVED: u32 = u32::from_le_bytes([Phase::Done as u8, Outcome::Success as u8, RECEIVE, 0]);

/// One operation under way.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct State {
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

impl State {
    /// Phase, outcome, flags and `cached_by` in one word: to be compared at once.
    #[inline(always)]
    const fn stand(&self) -> u32 {
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
        self.stand() == POSTED
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
        self.stand() == RECEIVED && self.total <= self.span.len()
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

/// Requests linked first to last, by index plus one. A request is in at most one list.
#[derive(Clone, Copy, Debug, FromZeros, Default)]
#[repr(C)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl List {
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.head == 0
    }

    /// 0 where there is none: to ask several lists at once.
    #[inline]
    pub const fn any(&self) -> u32 {
        self.head
    }

    /// The first request's slot.
    #[inline]
    pub const fn first(&self) -> Option<u32> {
        self.head.checked_sub(1)
    }

    pub fn push(&mut self, pool: &mut Pool<'_, State>, slot: u32) {
        let link = slot.wrapping_add(1);
        if let Some(state) = pool.at_mut(slot) {
            state.prev = self.tail;
            state.next = 0;
        }
        match self.tail.checked_sub(1).and_then(|tail| pool.at_mut(tail)) {
            Some(tail) => tail.next = link,
            None => self.head = link,
        }
        self.tail = link;
    }

    pub fn remove(&mut self, pool: &mut Pool<'_, State>, slot: u32) {
        let Some(state) = pool.at_mut(slot) else { return };
        let (prev, next) = (state.prev, state.next);
        (state.prev, state.next) = (0, 0);
        match prev.checked_sub(1).and_then(|prev| pool.at_mut(prev)) {
            Some(before) => before.next = next,
            None => self.head = next,
        }
        match next.checked_sub(1).and_then(|next| pool.at_mut(next)) {
            Some(after) => after.prev = prev,
            None => self.tail = prev,
        }
    }

    /// The slot after `slot`.
    pub fn after(pool: &Pool<'_, State>, slot: u32) -> Option<u32> {
        pool.at(slot)?.next.checked_sub(1)
    }
}
