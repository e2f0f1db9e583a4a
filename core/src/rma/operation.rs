//! The operations of an initiator: the state of each until its end was reported, and the queues of those that wait.

use zerocopy::FromZeros;

use super::errors::{Denied, Failure};
use super::routes::MAX_EXPOSED;
use crate::arena::{Arena, OutOfMemory};
use crate::convertor::Span;
use crate::pool::{Handle, Pool};
use crate::queue::Queue;
use crate::rail::atomics::{Atomic, AtomicFlags};
use crate::rail::native::{Key, Region};
use crate::rail::{Endpoint, FullRail, RemoteBuffer};

/// The handle of an operation. It is valid until the end of the operation is reported.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Operation(pub(crate) Handle);

impl Operation {
    /// The handle as one word, which is never 0: the slot in the lower half, and its generation in the upper half. For callers that
    /// keep tables parallel to [`Config::operations`](super::Config::operations) slots.
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }
}

/// A one-sided operation on memory of a peer.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Transfer {
    /// Copies local bytes to the peer's memory.
    Put(Span),
    /// Copies bytes of the peer's memory to local memory.
    Get(Span),
    /// Changes a word of the peer's memory. The result is its old value.
    Atomic(Atomic, AtomicFlags),
}

/// The end of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Finished {
    /// The operation. Its handle is stale from now on.
    pub operation: Operation,
    /// `Ok`: the old value of the word if the operation was an atomic, otherwise 0.
    pub result: Result<u64, Failure>,
}

#[derive(Clone, Copy, PartialEq, Eq, FromZeros, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    Put,
    Get,
    Atomic,
}

/// The mechanism that does an operation.
#[derive(Clone, Copy, PartialEq, Eq, FromZeros, Debug)]
#[repr(u8)]
pub(super) enum Method {
    /// Frames: requests to the target, which does the operation.
    Frames,
    /// The rail's device.
    Device,
    /// The compare and swap of the rail's device, until it swaps.
    CompareSwap,
}

/// The result of an operation, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, FromZeros, Debug)]
#[repr(u8)]
pub(super) enum Status {
    /// The operation has not failed.
    Active,
    Lost,
    Removed,
    Denied,
}

/// The state of an operation.
///
/// Three fields count bytes. `requested` counts the bytes for which a request was sent, and the bytes that were given to the
/// device. Unless the operation fails, `done` or `unread` counts each of them later. The operation is complete when `done` is
/// its length.
#[derive(Clone, Copy, FromZeros, Debug)]
pub(super) struct OperationState {
    pub kind: Kind,
    pub method: Method,
    pub status: Status,
    /// Why the target has denied the operation: the number from its answer.
    pub denied: u8,
    /// The operation is in the queue of operations with requests to send.
    pub is_queued: bool,
    /// The operation is in the queue of operations whose end is to be reported.
    pub is_completed: bool,
    /// The values of [`AtomicFlags`].
    pub flags: u8,
    /// Whether `region` is valid.
    pub has_region: bool,
    /// Exposed bytes could not be read: all bytes are now sent in frames.
    pub frames_only: bool,
    /// The RMA window: the most unanswered requests that the target accepts.
    pub window: u16,
    pub peer: u32,
    /// Requests without an answer.
    pub unanswered: u32,
    /// Frames of the operation that a rail has not finished: it reads them in place, or delivers their bodies.
    pub in_rail: u32,
    /// Pieces of the operation that the device has not finished.
    pub in_device: u32,
    pub local: Span,
    /// The local registration, which cannot end before the operation; 0: none.
    pub registration: u64,
    /// The target's handle of the memory.
    pub remote: u64,
    pub offset: u64,
    /// Bytes that were requested or given to the device, and bytes that are done. An atomic counts as [`ATOMIC_LEN`].
    pub requested: u64,
    pub done: u64,
    /// Exposed bytes that could not be read. When nothing else of the operation is in flight, all of it is requested again.
    pub unread: u64,
    /// For an atomic: its parts, and the old value of the word.
    pub op_code: u8,
    pub operand: u64,
    pub compare: [u8; 8],
    pub value: u64,
    /// For an operation of the device: the rail's handle of local memory, the key of the target's memory, and the most bytes
    /// that the device takes at once.
    pub region: Region,
    pub key: Key,
    pub piece: u64,
    /// For a compare and swap in place of another atomic: the expected value of the 64-bit word, the offset of the operation's
    /// word in it, and whether the target's words are big-endian.
    pub expected: u64,
    pub word_offset: u64,
    pub is_big_endian: bool,
}

/// The bytes that an atomic counts as: it is one request, which is done or not.
pub(super) const ATOMIC_LEN: u64 = 1;

impl OperationState {
    pub fn len(&self) -> u64 {
        if self.kind == Kind::Atomic { ATOMIC_LEN } else { self.local.len() }
    }

    /// Whether the operation has no request to send now.
    pub fn is_all_requested(&self) -> bool {
        self.status != Status::Active || self.unread != 0 || self.requested >= self.len()
    }

    /// Starts the whole operation again, in frames, if some bytes could not be read and no part of it is in flight. Returns
    /// whether it was started again.
    pub fn restart_in_frames(&mut self) -> bool {
        let is_idle = self.unanswered == 0 && self.in_rail == 0 && self.in_device == 0;
        let is_all_known = is_idle && self.done.saturating_add(self.unread) >= self.requested;
        let restarts = self.status == Status::Active && self.unread != 0 && is_all_known;
        if restarts {
            (self.requested, self.done, self.unread, self.frames_only) = (0, 0, 0, true);
        }
        restarts
    }

    /// Whether the result is final, no rail uses the operation's memory, and no queue has it.
    pub fn has_ended(&self) -> bool {
        let is_decided = self.status != Status::Active || (self.unread == 0 && self.done >= self.len());
        is_decided && self.unanswered == 0 && self.in_rail == 0 && self.in_device == 0 && !self.is_queued
    }

    /// Whether an answer is expected. A get with no unanswered request may still get data, since the last frame of an answer
    /// may overtake the others.
    pub fn expects_answer(&self) -> bool {
        self.unanswered != 0
            || (self.kind == Kind::Get && self.status == Status::Active && self.done < self.local.len())
    }

    /// Exposes the next bytes of a put to the peer, if they do not fit into a frame, which has room for `in_frame` bytes.
    pub fn expose<R: FullRail>(&self, rail: &mut R, to: Endpoint, in_frame: u64) -> Option<(Span, RemoteBuffer)> {
        let piece = self.local.window(self.requested, MAX_EXPOSED);
        let buffer = if self.frames_only || piece.len() <= in_frame { None } else { rail.expose(to, &piece) };
        Some((piece, buffer?))
    }

    /// The next bytes of a get, if the peer is to expose them: up to `most` bytes, which is what can be read at once, if they
    /// do not fit into a frame, which has room for `in_frame` bytes.
    pub fn exposed_piece(&self, most: u64, in_frame: u64) -> Option<Span> {
        let piece = self.local.window(self.requested, most.min(MAX_EXPOSED));
        let fits = !self.frames_only && piece.len() > in_frame && piece.as_contiguous().is_some();
        fits.then_some(piece)
    }

    pub fn result(&self) -> Result<u64, Failure> {
        match self.status {
            Status::Active => Ok(self.value),
            Status::Lost => Err(Failure::Lost),
            Status::Removed => Err(Failure::Removed),
            Status::Denied => Err(Failure::Denied(Denied::of(self.denied).unwrap_or(Denied::NotAvailable))),
        }
    }
}

#[derive(Debug)]
pub(super) struct Operations<'m> {
    pub slots: Pool<'m, OperationState>,
    /// Operations with requests that wait for room, or for answers to other requests.
    pub unsent: Queue<'m>,
    /// Some of `unsent` wait for room or were not tried yet. If this is `false`, all of them wait for answers.
    pub needs_retry: bool,
    /// Operations whose end is to be reported.
    pub completed: Queue<'m>,
}

impl<'m> Operations<'m> {
    pub fn new(arena: &mut Arena<'m>, count: u32) -> Result<Self, OutOfMemory> {
        let queue = |arena: &mut Arena<'m>| Queue::new(arena, count as usize);
        Ok(Self {
            slots: Pool::new(arena, count)?,
            unsent: queue(arena)?,
            needs_retry: false,
            completed: queue(arena)?,
        })
    }

    /// None, in a build without one-sided operations.
    pub const fn none() -> Self {
        Self { slots: Pool::none(), unsent: Queue::none(), needs_retry: false, completed: Queue::none() }
    }

    pub const fn cost(count: u32) -> usize {
        Pool::<OperationState>::cost(count).saturating_add(Queue::cost(count as usize).saturating_mul(2))
    }

    /// Operations whose end is to be reported.
    pub const fn due(&self) -> u32 {
        self.completed.len()
    }

    /// Slots in use, and all slots.
    pub const fn used(&self) -> [u32; 2] {
        [self.slots.used(), self.slots.capacity()]
    }
}
