//! Sends that are under way: one slot each, and queues through the slots.

use zerocopy::FromZeros;

use crate::arena::{Arena, OutOfMemory};
use crate::btl::descriptor::Descriptor;
use crate::btl::endpoint::EndpointId;
use crate::btl::errors::Failure;
use crate::pool::{Handle, Pool};

/// How far a send is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The rail was full; it is to be tried again.
    Waiting,
    /// The rail has a copy, which has not left yet.
    Staged,
    /// The rail reads the descriptor's memory.
    InPlace,
    /// Complete; the callback is due.
    Finished(Result<(), Failure>),
}

/// One send of one descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub descriptor: Descriptor,
    pub endpoint: EndpointId,
    pub tag: u8,
    pub stage: Stage,
    /// It goes before those that wait and are not.
    pub urgent: bool,
    /// It leaves when all that was sent before has arrived.
    pub ordered: bool,
}

/// First and last slot plus one, 0 where there is none.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Queue {
    first: u32,
    last: u32,
    len: u32,
}

impl Queue {
    pub(super) const fn len(&self) -> u32 {
        self.len
    }
}

/// The slots.
#[derive(Debug)]
pub(super) struct Sends<'m> {
    /// The slot that follows in the queue, plus one.
    next: Pool<'m, Next>,
    operations: &'m mut [Operation],
}

#[derive(Clone, Copy, FromZeros, Debug)]
struct Next(u32);

impl<'m> Sends<'m> {
    pub(super) fn new(arena: &mut Arena<'m>, count: u32) -> Result<Self, OutOfMemory> {
        let none = Operation {
            descriptor: Descriptor(Handle::NONE),
            endpoint: EndpointId(Handle::NONE),
            tag: 0,
            stage: Stage::Waiting,
            urgent: false,
            ordered: false,
        };
        Ok(Self { next: Pool::new(arena, count)?, operations: arena.filled(count as usize, none)? })
    }

    pub(super) const fn cost(count: u32) -> usize {
        Pool::<Next>::cost(count).saturating_add(Arena::cost::<Operation>(count as usize))
    }

    pub(super) fn begin(&mut self, operation: Operation) -> Option<Handle> {
        let handle = self.next.take(Next(0)).ok()?;
        *self.operations.get_mut(handle.slot() as usize)? = operation;
        Some(handle)
    }

    pub(super) fn end(&mut self, handle: Handle) -> Option<Operation> {
        self.next.free(handle)?;
        self.operations.get(handle.slot() as usize).copied()
    }

    pub(super) fn get(&self, handle: Handle) -> Option<&Operation> {
        self.next.get(handle)?;
        self.operations.get(handle.slot() as usize)
    }

    pub(super) fn get_mut(&mut self, handle: Handle) -> Option<&mut Operation> {
        self.next.get(handle)?;
        self.operations.get_mut(handle.slot() as usize)
    }

    pub(super) fn push(&mut self, queue: &mut Queue, handle: Handle) {
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

    pub(super) fn pop(&mut self, queue: &mut Queue) -> Option<Handle> {
        let handle = self.next.handle(queue.first.checked_sub(1)?)?;
        queue.first = self.next.get(handle)?.0;
        if queue.first == 0 {
            queue.last = 0;
        }
        queue.len = queue.len.saturating_sub(1);
        Some(handle)
    }

    /// The operation in a slot, if any: to go through all of them.
    pub(super) fn at(&self, slot: u32) -> Option<(Handle, &Operation)> {
        Some((self.next.handle(slot)?, self.operations.get(slot as usize)?))
    }

    pub(super) const fn capacity(&self) -> u32 {
        self.next.capacity()
    }

    pub(super) fn used(&self) -> u32 {
        self.next.used()
    }
}
