//! The operations of an initiator: what is known of each until its end was told, and the queues of those that wait.

use zerocopy::FromZeros;

use super::errors::{Denied, Failure};
use super::ways::MOST_EXPOSED;
use crate::arena::{Arena, OutOfMemory};
use crate::convertor::Span;
use crate::pool::{Handle, Pool};
use crate::queue::Queue;
use crate::rail::atomics::{Atomic, AtomicFlags};
use crate::rail::native::{Key, Region};
use crate::rail::{Endpoint, FullRail, RemoteBuffer};

/// Names an operation until it is finished.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Operation(pub(crate) Handle);

/// What is to be done with memory of a peer.
#[derive(Clone, Copy, Debug)]
pub enum Transfer {
    /// Local bytes become remote ones.
    Put(Span),
    /// Remote bytes become local ones.
    Get(Span),
    /// A remote word is changed, and its old value is told.
    Atomic(Atomic, AtomicFlags),
}

/// An operation that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Finished {
    /// Which one; void from now on.
    pub operation: Operation,
    /// Of an atomic, what the word was; else 0.
    pub result: Result<u64, Failure>,
}

#[derive(Clone, Copy, PartialEq, Eq, FromZeros, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    Put,
    Get,
    Atomic,
}

/// How an operation is done.
#[derive(Clone, Copy, PartialEq, Eq, FromZeros, Debug)]
#[repr(u8)]
pub(super) enum By {
    /// Requests, which the target does.
    Frames,
    /// The rail does it.
    Device,
    /// The rail's compare and swap, until it swaps.
    Swaps,
}

/// What is known of an operation's end.
#[derive(Clone, Copy, PartialEq, Eq, FromZeros, Debug)]
#[repr(u8)]
pub(super) enum Fate {
    Open,
    Lost,
    Removed,
    Denied,
}

#[derive(Clone, Copy, FromZeros, Debug)]
pub(super) struct OperationState {
    pub kind: Kind,
    pub by: By,
    pub fate: Fate,
    /// Why the target has denied it, as that says.
    pub denied: u8,
    /// It is in the queue of those with requests to be sent.
    pub is_asking: bool,
    /// It is in the queue of those whose end is to be told.
    pub is_over: bool,
    /// The values of [`AtomicFlags`].
    pub flags: u8,
    /// `region` is one.
    pub has_region: bool,
    /// Something of it could not be fetched: what is asked for from now on comes and goes in frames.
    pub is_copied: bool,
    /// Unanswered requests that the target keeps in mind.
    pub window: u16,
    pub peer: u32,
    /// Requests without an answer.
    pub unanswered: u32,
    /// Frames of it that a rail has in hand: read in place, or coming in.
    pub in_rail: u32,
    /// Pieces of it that the rail is doing.
    pub in_device: u32,
    pub local: Span,
    /// The local registration, which is not deregistered meanwhile; 0: none.
    pub registration: u64,
    /// The target's name for the memory.
    pub remote: u64,
    pub offset: u64,
    /// Bytes that requests were sent for, and bytes that are done; an atomic is [`ATOMIC_LEN`].
    pub asked: u64,
    pub done: u64,
    /// Bytes that could not be fetched. When nothing else is under way, all is asked for again.
    pub void: u64,
    /// Of an atomic: its parts, and the word that was there.
    pub which: u8,
    pub operand: u64,
    pub compare: [u8; 8],
    pub value: u64,
    /// Of what the rail does: its name for local memory, the target's rail's for the other, and bytes that it takes at once.
    pub region: Region,
    pub key: Key,
    pub piece: u64,
    /// What the word of 64 bits is taken for, where in it the word begins, and whether that is its more significant half if it
    /// begins with it.
    pub guess: u64,
    pub within: u64,
    pub is_big_endian: bool,
}

/// An atomic is one request: what counts is that it is done.
pub(super) const ATOMIC_LEN: u64 = 1;

impl OperationState {
    pub fn len(&self) -> u64 {
        if self.kind == Kind::Atomic { ATOMIC_LEN } else { self.local.len() }
    }

    pub fn is_all_asked(&self) -> bool {
        self.fate != Fate::Open || self.void != 0 || self.asked >= self.len()
    }

    /// Asks for all of it once more if some of it could not be fetched, as soon as nothing else of it is under way.
    pub fn begins_again(&mut self) -> bool {
        let is_idle = self.unanswered == 0 && self.in_rail == 0 && self.in_device == 0;
        let is_known = is_idle && self.done.saturating_add(self.void) >= self.asked;
        let begins = self.fate == Fate::Open && self.void != 0 && is_known;
        if begins {
            (self.asked, self.done, self.void, self.is_copied) = (0, 0, 0, true);
        }
        begins
    }

    /// Nothing more happens to it, no rail has its memory, and no queue has it.
    pub fn has_ended(&self) -> bool {
        let is_decided = self.fate != Fate::Open || (self.void == 0 && self.done >= self.len());
        is_decided && self.unanswered == 0 && self.in_rail == 0 && self.in_device == 0 && !self.is_asking
    }

    /// Whether an answer makes sense: the last one of several may overtake the others.
    pub fn awaits(&self) -> bool {
        self.unanswered != 0 || (self.kind == Kind::Get && self.fate == Fate::Open && self.done < self.local.len())
    }

    /// Lends the peer the next bytes of a put, if that is more than what a frame brings.
    pub fn expose<R: FullRail>(&self, rail: &mut R, to: Endpoint, in_frame: u64) -> Option<(Span, RemoteBuffer)> {
        let piece = self.local.window(self.asked, MOST_EXPOSED);
        let loan = if self.is_copied || piece.len() <= in_frame { None } else { rail.expose(to, &piece) };
        Some((piece, loan?))
    }

    /// The next bytes of a get, if they are to be asked for by a loan: of as many as can be fetched at a time, if that is more than
    /// what a frame brings.
    pub fn borrow(&self, most: u64, in_frame: u64) -> Option<Span> {
        let piece = self.local.window(self.asked, most.min(MOST_EXPOSED));
        let fits = !self.is_copied && piece.len() > in_frame && piece.as_contiguous().is_some();
        fits.then_some(piece)
    }

    pub fn result(&self) -> Result<u64, Failure> {
        match self.fate {
            Fate::Open => Ok(self.value),
            Fate::Lost => Err(Failure::Lost),
            Fate::Removed => Err(Failure::Removed),
            Fate::Denied => Err(Failure::Denied(Denied::of(self.denied).unwrap_or(Denied::NotAvailable))),
        }
    }
}

#[derive(Debug)]
pub(super) struct Operations<'m> {
    pub slots: Pool<'m, OperationState>,
    /// Those with requests that wait for room or for answers to others.
    pub asking: Queue<'m>,
    /// One of those waits for room, or was not tried yet; the others wait for answers.
    pub wants_room: bool,
    /// Those whose end is to be told.
    pub over: Queue<'m>,
}

impl<'m> Operations<'m> {
    pub fn new(arena: &mut Arena<'m>, count: u32) -> Result<Self, OutOfMemory> {
        let queue = |arena: &mut Arena<'m>| Queue::new(arena, count as usize);
        Ok(Self { slots: Pool::new(arena, count)?, asking: queue(arena)?, wants_room: false, over: queue(arena)? })
    }

    pub const fn cost(count: u32) -> usize {
        Pool::<OperationState>::cost(count).saturating_add(Queue::cost(count as usize).saturating_mul(2))
    }

    pub const fn due(&self) -> u32 {
        self.over.len()
    }

    pub const fn used(&self) -> [u32; 2] {
        [self.slots.used(), self.slots.capacity()]
    }
}
