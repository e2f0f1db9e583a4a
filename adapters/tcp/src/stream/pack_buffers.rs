//! Buffers of the longest frame, shared by all connections of a rail, for long bodies that must be packed.

use crate::stream::block::Block;

/// A fixed number of equal buffers.
#[derive(Debug)]
pub(crate) struct Large {
    buffers: Vec<Block>,
    free: Vec<u32>,
    /// Buffers that one connection may hold, so that one that is stuck does not stop the others.
    share: u32,
}

impl Large {
    /// `count` buffers, and one more for control frames. Memory is touched only as it is used.
    pub(crate) fn new(count: u32, bytes: usize) -> Self {
        Self {
            buffers: (0..=count).map(|_| Block::new(bytes)).collect(),
            free: (0..=count).rev().collect(),
            share: (count / 2).max(1),
        }
    }

    /// The buffer that would be given next, without taking it. `held` of them the asker has.
    pub(crate) fn peek(&self, control: bool, held: u32) -> Option<(u32, *mut u8)> {
        let allowed = if control { !self.free.is_empty() } else { self.free.len() > 1 && held < self.share };
        let slot = *self.free.last().filter(|_| allowed)?;
        Some((slot, self.at(slot)))
    }

    /// Takes what `peek` showed.
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
