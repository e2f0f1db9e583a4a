//! Buffers of the longest frame for long bodies that must be packed, shared by all connections of a rail.

use crate::stream::block::Block;

/// A fixed number of equal buffers.
#[derive(Debug)]
pub(crate) struct PackBuffers {
    buffers: Vec<Block>,
    free: Vec<u32>,
    /// Maximum number of buffers that one connection may hold, so that a connection that makes no progress does not block the
    /// others.
    share: u32,
}

impl PackBuffers {
    /// `count` buffers of `bytes` bytes, and one more for control frames. Pages are touched only as they are used.
    pub(crate) fn new(count: u32, bytes: usize) -> Self {
        Self {
            buffers: (0..=count).map(|_| Block::new(bytes)).collect(),
            free: (0..=count).rev().collect(),
            share: (count / 2).max(1),
        }
    }

    /// The buffer that would be taken next, with its address. The connection holds `held` buffers already.
    pub(crate) fn peek(&self, control: bool, held: u32) -> Option<(u32, *mut u8)> {
        let allowed = if control { !self.free.is_empty() } else { self.free.len() > 1 && held < self.share };
        let slot = *self.free.last().filter(|_| allowed)?;
        Some((slot, self.at(slot)))
    }

    /// Takes the buffer that `peek` returned.
    pub(crate) fn take(&mut self, slot: u32) {
        let taken = self.free.pop();
        debug_assert_eq!(taken, Some(slot));
    }

    pub(crate) fn give_back(&mut self, slot: u32) {
        debug_assert!(!self.free.contains(&slot));
        self.free.push(slot);
    }

    pub(crate) fn at(&self, slot: u32) -> *mut u8 {
        self.buffers[slot as usize].at(0)
    }
}
