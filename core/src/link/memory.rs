//! Memory for frames. It is accessed by raw pointers alone, since the rail below and the reader have pointers to it, too.

use core::marker::PhantomData;

use crate::arena::{Arena, OutOfMemory};

/// Places of equal length.
#[derive(Debug)]
pub(super) struct Memory<'m> {
    base: *mut u8,
    each: usize,
    count: usize,
    memory: PhantomData<&'m mut [u8]>,
}

// SAFETY: this is the only owner of its part of the arena, which may move between threads.
unsafe impl Send for Memory<'_> {}

impl<'m> Memory<'m> {
    /// `count` places of at least `each` bytes, aligned to 8.
    pub fn new(arena: &mut Arena<'m>, count: usize, each: usize) -> Result<Self, OutOfMemory> {
        let words = each.div_ceil(8);
        let base = arena.table::<u64>(words.saturating_mul(count))?.as_mut_ptr().cast();
        Ok(Self { base, each: words * 8, count, memory: PhantomData })
    }

    /// How many bytes of an arena [`new`](Self::new) takes at most.
    pub const fn cost(count: usize, each: usize) -> usize {
        Arena::cost::<u64>(each.div_ceil(8).saturating_mul(count))
    }

    /// The start of a place, valid for reads and writes of [`each`](Self::each) bytes. For a place that does not exist, which no
    /// caller asks for, the start of the first one.
    pub fn at(&self, place: u32) -> *mut u8 {
        let place = if (place as usize) < self.count { place as usize } else { 0 };
        self.base.wrapping_add(place.wrapping_mul(self.each))
    }

    /// Bytes of a place.
    pub const fn each(&self) -> usize {
        self.each
    }
}
