//! The answers that a target owes: one slot for each request of a peer, until its answer has left.

use zerocopy::FromZeros;

use crate::arena::{Arena, OutOfMemory};
use crate::convertor::Span;
use crate::pool::Pool;
use crate::queue::Queue;

/// A request of a peer, from its arrival until its answer has left.
#[derive(Clone, Copy, FromZeros, Debug)]
pub(super) struct PendingAnswer {
    pub peer: u32,
    /// The body of the request is arriving. Otherwise the answer waits for room.
    pub is_arriving: bool,
    /// The answer may be a remote buffer in place of the data.
    pub may_expose: bool,
    pub kind: u8,
    pub status: u8,
    /// The target's memory, which cannot be deregistered while this answer needs it; 0: none.
    pub memory: u64,
    /// The initiator's handle of the operation.
    pub id: u64,
    /// The field `value` of the next frame.
    pub value: u64,
    /// The number of bytes that were put.
    pub len: u32,
    /// The data of a get that is still to be sent.
    pub data: Span,
}

#[derive(Debug)]
pub(super) struct Answers<'m> {
    pub slots: Pool<'m, PendingAnswer>,
    /// The answers that wait for room.
    pub ready: Queue<'m>,
}

impl<'m> Answers<'m> {
    pub fn new(arena: &mut Arena<'m>, count: u32) -> Result<Self, OutOfMemory> {
        Ok(Self { slots: Pool::new(arena, count)?, ready: Queue::new(arena, count as usize)? })
    }

    /// None, in a build without one-sided operations.
    pub const fn none() -> Self {
        Self { slots: Pool::none(), ready: Queue::none() }
    }

    pub const fn cost(count: u32) -> usize {
        Pool::<PendingAnswer>::cost(count).saturating_add(Queue::cost(count as usize))
    }

    pub const fn is_idle(&self) -> bool {
        self.ready.is_empty()
    }

    /// Slots in use, and all slots.
    pub const fn used(&self) -> [u32; 2] {
        [self.slots.used(), self.slots.capacity()]
    }
}
