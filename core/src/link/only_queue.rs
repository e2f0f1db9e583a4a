//! The queue of a link's only peer, in the place of `peer_queue`.

use core::marker::PhantomData;

use crate::arena::{Arena, OutOfMemory};

/// Whether the peer is in the queue.
#[derive(Debug)]
pub(super) struct PeerQueue<'m> {
    queued: bool,
    tables: PhantomData<&'m mut [u32]>,
}

impl<'m> PeerQueue<'m> {
    pub const fn new(_: &mut Arena<'m>, _: usize) -> Result<Self, OutOfMemory> {
        Ok(Self { queued: false, tables: PhantomData })
    }

    pub const fn cost(_: usize) -> usize {
        0
    }

    pub const fn push(&mut self, _: u32) {
        self.queued = true;
    }

    pub fn pop(&mut self) -> Option<u32> {
        core::mem::take(&mut self.queued).then_some(0)
    }

    pub fn first(&self) -> Option<u32> {
        self.queued.then_some(0)
    }

    pub const fn len(&self) -> u32 {
        self.queued as u32
    }

    pub const fn is_empty(&self) -> bool {
        !self.queued
    }

    /// Keeps the peer only if `wanted` returns `true`.
    pub fn retain(&mut self, wanted: impl Fn(u32) -> bool) {
        self.queued &= wanted(0);
    }
}
