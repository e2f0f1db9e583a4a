//! A ring in the memory of a window.

use crate::atomics::AtomicU32;
use crate::memory::{LINE, Memory, OutOfBounds};
use crate::ring::{SLOT, Slots};

/// A ring in a window.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'w> {
    places: &'w [[AtomicU32; SLOT / 4]],
    taken: &'w AtomicU32,
    slots: u32,
}

impl<'w> Ring<'w> {
    /// The ring of `slots` slots at an offset, whose reader's position is the word at `taken`.
    ///
    /// # Errors
    /// [`OutOfBounds`] if a part of it is outside the window, or `at` is not a multiple of 64.
    pub fn new(memory: &Memory<'w>, at: u64, slots: u32, taken: u64) -> Result<Self, OutOfBounds> {
        let begin = memory.range(at, u64::from(slots) * SLOT as u64)?;
        if !at.is_multiple_of(LINE as u64) {
            return Err(OutOfBounds);
        }
        // SAFETY: the range is inside the window, at a multiple of 64, and is valid for the lifetime. This side accesses it as
        // atomics only.
        let places = unsafe { core::slice::from_raw_parts(begin.as_ptr().cast(), slots as usize) };
        Ok(Self { places, taken: memory.word(taken)?, slots })
    }
}

impl Slots for Ring<'_> {
    #[inline]
    fn slots(&self) -> u32 {
        self.slots
    }

    #[inline]
    fn slot(&self, position: u32) -> Option<&[AtomicU32]> {
        let slot = self.places.get((position & self.slots.wrapping_sub(1)) as usize)?;
        Some(slot)
    }

    #[inline]
    fn taken(&self) -> &AtomicU32 {
        self.taken
    }
}
