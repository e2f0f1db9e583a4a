//! Sends in progress: one slot each, and queues that link the slots.

use zerocopy::FromZeros;

use crate::arena::{Arena, OutOfMemory};
use crate::btl::descriptor::Descriptor;
use crate::btl::endpoint::EndpointId;
use crate::btl::errors::Failure;
use crate::pool::{Handle, Pool};

/// The stage of a send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The rail was full: the send is tried again.
    Waiting,
    /// The rail has copied the frame, which has not left yet.
    Staged,
    /// The rail reads the descriptor's memory in place.
    InPlace,
    /// The send is complete, and its callback is due.
    Finished(Result<(), Failure>),
}

/// One send of one descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingSend {
    pub descriptor: Descriptor,
    pub endpoint: EndpointId,
    pub tag: u8,
    pub stage: Stage,
    /// The send has priority: it goes before waiting sends without priority.
    pub urgent: bool,
    /// The send is ordered: it leaves when all frames that were sent before it have arrived.
    pub ordered: bool,
}

/// A queue of sends: its first and last slot plus one, 0 for none.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SendQueue {
    first: u32,
    last: u32,
    len: u32,
}

impl SendQueue {
    pub(super) const fn len(&self) -> u32 {
        self.len
    }
}

/// The slots of sends.
#[derive(Debug)]
pub(super) struct Sends<'m> {
    /// For each slot: the number of the slot that follows in its queue, plus one; 0 for none.
    next: Pool<'m, Next>,
    sends: &'m mut [PendingSend],
}

#[derive(Clone, Copy, FromZeros, Debug)]
struct Next(u32);

impl<'m> Sends<'m> {
    pub(super) fn new(arena: &mut Arena<'m>, count: u32) -> Result<Self, OutOfMemory> {
        let none = PendingSend {
            descriptor: Descriptor(Handle::NONE),
            endpoint: EndpointId(Handle::NONE),
            tag: 0,
            stage: Stage::Waiting,
            urgent: false,
            ordered: false,
        };
        Ok(Self { next: Pool::new(arena, count)?, sends: arena.filled(count as usize, none)? })
    }

    pub(super) const fn cost(count: u32) -> usize {
        Pool::<Next>::cost(count).saturating_add(Arena::cost::<PendingSend>(count as usize))
    }

    pub(super) fn begin(&mut self, send: PendingSend) -> Option<Handle> {
        let handle = self.next.take(Next(0)).ok()?;
        *self.sends.get_mut(handle.slot() as usize)? = send;
        Some(handle)
    }

    pub(super) fn end(&mut self, handle: Handle) -> Option<PendingSend> {
        self.next.free(handle)?;
        self.sends.get(handle.slot() as usize).copied()
    }

    pub(super) fn get(&self, handle: Handle) -> Option<&PendingSend> {
        self.next.get(handle)?;
        self.sends.get(handle.slot() as usize)
    }

    pub(super) fn get_mut(&mut self, handle: Handle) -> Option<&mut PendingSend> {
        self.next.get(handle)?;
        self.sends.get_mut(handle.slot() as usize)
    }

    pub(super) fn push(&mut self, queue: &mut SendQueue, handle: Handle) {
        let Some(next) = self.next.get_mut(handle) else { return };
        next.0 = 0;
        let link = handle.slot().wrapping_add(1);
        match queue.last.checked_sub(1).and_then(|last| self.next.at_mut(last)) {
            Some(last) => last.0 = link,
            None => queue.first = link,
        }
        queue.last = link;
        queue.len = queue.len.saturating_add(1);
    }

    pub(super) fn pop(&mut self, queue: &mut SendQueue) -> Option<Handle> {
        let handle = self.next.handle(queue.first.checked_sub(1)?)?;
        queue.first = self.next.get(handle)?.0;
        if queue.first == 0 {
            queue.last = 0;
        }
        queue.len = queue.len.saturating_sub(1);
        Some(handle)
    }

    /// The send in a slot, if the slot is in use: for loops over all sends.
    pub(super) fn at(&self, slot: u32) -> Option<(Handle, &PendingSend)> {
        Some((self.next.handle(slot)?, self.sends.get(slot as usize)?))
    }

    pub(super) const fn capacity(&self) -> u32 {
        self.next.capacity()
    }

    pub(super) fn used(&self) -> u32 {
        self.next.used()
    }
}
