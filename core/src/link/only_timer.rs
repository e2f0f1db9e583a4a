//! The deadline of a link's only peer, in the place of `timers`.

use core::marker::PhantomData;

use crate::arena::{Arena, OutOfMemory};

/// A deadline. It can only be brought forward: a caller that wants a later one sets it again when the earlier one is due.
#[derive(Debug)]
pub(super) struct Timers<'m> {
    due: Option<u64>,
    tables: PhantomData<&'m mut [u64]>,
}

impl<'m> Timers<'m> {
    pub const fn new(_: &mut Arena<'m>, _: usize) -> Result<Self, OutOfMemory> {
        Ok(Self { due: None, tables: PhantomData })
    }

    pub const fn cost(_: usize) -> usize {
        0
    }

    /// The deadline.
    pub const fn first(&self) -> Option<u64> {
        self.due
    }

    /// The deadline: index and time.
    pub fn next(&self) -> Option<(u32, u64)> {
        self.due.map(|due| (0, due))
    }

    /// Sets the deadline, unless there is an earlier one.
    #[inline(never)]
    pub fn set(&mut self, _: u32, due: u64) {
        if self.due.is_none_or(|earlier| due < earlier) {
            self.due = Some(due);
        }
    }

    /// Removes the deadline if it is due.
    pub fn pop(&mut self, now: u64) -> Option<u32> {
        self.due.take_if(|due| *due <= now).map(|_| 0)
    }

    /// Removes the deadline.
    pub const fn remove(&mut self, _: u32) {
        self.due = None;
    }
}
