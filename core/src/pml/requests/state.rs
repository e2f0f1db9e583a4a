//! The state of a request: one slot of a pool for each operation in progress.

use zerocopy::FromZeros;

use crate::convertor::Span;
use crate::list::{Linked, Links, OptSlot};
use crate::rail::{LATER, Peer, ShortBody};

/// The phase of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromZeros)]
#[repr(u8)]
pub(crate) enum Phase {
    /// The operation is over. Its outcome waits to be taken.
    Done,
    /// A send whose first fragment has not left.
    Held,
    /// A send that waits for an ack, a finish or a reject.
    Waiting,
    /// A send whose later fragments are leaving.
    Streaming,
    /// A send that was handed to rails whole. They still read its memory or have not drained.
    Leaving,
    /// A receive without a match.
    Posted,
    /// A receive for a message that a matched probe took. It has no memory yet. Its outcome says whether the sender was lost
    /// since.
    Taken,
    /// A matched receive whose bytes are arriving.
    Receiving,
    /// A matched receive that has yet to answer its sender.
    Responding,
    /// An operation that a device has ([`Offload`](crate::pml::offload::Offload)).
    Offloaded,
    /// A receive for a message that a matched probe took from a device. It has no memory yet.
    OffloadedMessage,
}

/// How a request ended. The variants are those of [`Failure`](crate::pml::Failure).
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromZeros)]
#[repr(u8)]
pub(crate) enum Outcome {
    Success,
    Cancelled,
    PeerFailed,
    PeerClosed,
    Restarted,
    NotReady,
    NoCommunicator,
    TooLong,
    DeviceFailed,
    MessagesLost,
    BadMemory,
    Aborted,
}

/// The request is freed when it is done, since its outcome is not wanted.
pub(crate) const DETACHED: u8 = 0x01;
/// The request is announced among the completed ones when it is done.
pub(crate) const NOTIFY: u8 = 0x02;
/// A send is done only when the rails to its peer have drained.
pub(crate) const DRAIN: u8 = 0x04;
/// A send must not go eagerly. With `READY` it must find a posted receive.
pub(crate) const SYNCHRONOUS: u8 = 0x08;
/// A send in ready mode.
pub(crate) const READY: u8 = 0x10;
/// The first fragment of a send went out as an answer, which is not settled.
pub(crate) const ANSWERING: u8 = 0x20;
/// A receive.
pub(crate) const RECEIVE: u8 = 0x40;
/// The request is in the list of active ones.
pub(crate) const ACTIVE: u8 = 0x80;

/// [`RequestState::status_word`] of a posted receive without other flags.
const POSTED: u32 = u32::from_le_bytes([Phase::Posted as u8, Outcome::Success as u8, RECEIVE, 0]);
/// [`RequestState::status_word`] of a receive that has succeeded, without other flags.
const RECEIVED: u32 = u32::from_le_bytes([Phase::Done as u8, Outcome::Success as u8, RECEIVE, 0]);

/// A request's data about the other side, in one word. The phase says which of the five meanings it has:
///
/// | request | phase | meaning |
/// |---|---|---|
/// | receive | `Posted` | its number in posting order |
/// | receive | `Taken`, `Receiving`, `Responding` | the sender's handle |
/// | send | `Held`, `Waiting` | marks: [`EXPOSED`](Self::EXPOSED), [`DECLINES_DEVICE`](Self::DECLINES_DEVICE), [`IN_TABLE`](Self::IN_TABLE) |
/// | send | `Streaming` | the receiver's handle |
/// | receive | `OffloadedMessage` | the device's number of the message |
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, FromZeros)]
#[repr(transparent)]
pub(crate) struct Remote(u64);

impl Remote {
    /// The memory of a waiting send is exposed to the peer (single copy).
    pub const EXPOSED: u64 = 1;
    /// The peer offered memory to a waiting send, and there was no slot for the offer: no device moves this message.
    pub const DECLINES_DEVICE: u64 = 2;
    /// A send that is in the table of held-back sends.
    pub const IN_TABLE: u64 = 4;

    #[inline(always)]
    pub const fn posting(number: u64) -> Self {
        Self(number)
    }

    #[inline(always)]
    pub const fn handle(bits: u64) -> Self {
        Self(bits)
    }

    pub const fn as_posting(self) -> u64 {
        self.0
    }

    #[inline]
    pub const fn as_handle(self) -> u64 {
        self.0
    }

    pub const fn has(self, mark: u64) -> bool {
        self.0 & mark != 0
    }

    pub fn set(&mut self, mark: u64) {
        self.0 |= mark;
    }

    pub fn clear(&mut self, mark: u64) {
        self.0 &= !mark;
    }
}

/// A slot in another table, which is to be released when the request ends: of a send its entry in the cache of a rail, of a
/// posted receive its parent in the posting order. None means that there is nothing to release.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromZeros)]
#[repr(transparent)]
pub(crate) struct Attachment(pub OptSlot);

impl Attachment {
    pub const NONE: Self = Self(OptSlot::NONE);

    pub const fn of_cache_entry(entry: u32) -> Self {
        Self(OptSlot::some(entry))
    }

    pub const fn cache_entry(self) -> Option<u32> {
        self.0.get()
    }

    #[inline]
    pub const fn is_some(self) -> bool {
        self.0.is_some()
    }
}

/// One operation in progress.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct RequestState {
    pub phase: Phase,
    pub outcome: Outcome,
    pub flags: u8,
    /// The rail in whose cache a send has an entry.
    pub cached_by: u8,
    /// The other side: of a posted receive the source of its pattern, of a matched one the sender.
    pub peer: u32,
    pub context: u32,
    pub tag: u32,
    /// The user's memory.
    pub span: Span,
    /// Bytes of the message.
    pub total: u64,
    /// Bytes of the message that the receiver wants. Known to a sender from the ack on.
    pub wanted: u64,
    /// Bytes of the message that a sender has handed to rails, or that have arrived at a receiver.
    pub moved: u64,
    pub remote: Remote,
    /// Frames for which a rail still reads or writes the user's memory.
    pub inflight: u32,
    /// The neighbours in the list that contains the request; it is in one list at most. Of a receive in the posting order: its
    /// children there.
    pub links: Links,
    pub attachment: Attachment,
}

impl Linked for RequestState {
    fn links(&self) -> Links {
        self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl RequestState {
    /// Phase, outcome, flags and `cached_by` as one word, so that one comparison tests all of them.
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

    /// Receives a short message whole.
    ///
    /// # Safety
    /// As [`ShortBody::deliver`], to the memory of the receive.
    #[inline(always)]
    pub unsafe fn receive(&mut self, from: Peer, tag: u32, body: ShortBody) {
        (self.peer, self.tag) = (from.0, tag);
        self.total = body.len() as u64;
        // SAFETY: passed on from the caller.
        unsafe { body.deliver(&self.span) };
    }

    /// Whether it is a posted receive whose end needs no action: the outcome waits until the caller takes it.
    #[inline(always)]
    pub const fn is_plain(&self) -> bool {
        self.status_word() == POSTED
    }

    /// Marks a receive without other flags as succeeded.
    #[inline(always)]
    pub fn succeed(&mut self) {
        // All four bytes are stored, since they are read as one word. A processor forwards a store to a load that follows soon
        // only if the load reads no more than the store wrote. Otherwise the load waits until this store and all earlier ones
        // are done.
        self.phase = Phase::Done;
        self.outcome = Outcome::Success;
        self.flags = RECEIVE;
        self.cached_by = 0;
    }

    /// Whether it is a receive that has not matched, as far as this engine knows.
    #[inline]
    pub const fn is_unmatched_receive(&self) -> bool {
        match self.phase {
            Phase::Posted => true,
            Phase::Offloaded => self.flags & RECEIVE != 0,
            _ => false,
        }
    }

    /// Whether it is a receive that got all of its message and is in no list.
    #[inline(always)]
    pub const fn has_succeeded(&self) -> bool {
        self.status_word() == RECEIVED && self.total <= self.span.len()
    }

    /// Whether no rail accesses the user's memory.
    #[inline]
    pub const fn is_idle(&self) -> bool {
        !LATER || self.inflight == 0
    }

    /// Bytes of the message that a receive has room for.
    #[inline]
    pub fn fits(&self) -> u64 {
        self.total.min(self.span.len())
    }

    /// Marks the request as over. [`is_awaited`](Self::is_awaited) says whether its end needs more steps.
    #[inline]
    pub fn finish(&mut self, outcome: Outcome) {
        if outcome == Outcome::Success && self.flags == RECEIVE {
            return self.succeed();
        }
        self.phase = Phase::Done;
        self.outcome = outcome;
    }

    /// Whether the end of the request needs more steps than storing the outcome.
    #[inline]
    pub const fn is_awaited(&self) -> bool {
        self.flags & (DETACHED | NOTIFY) != 0 || self.attachment.is_some()
    }
}
