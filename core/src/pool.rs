//! Slots of one kind, taken and given back in constant time, named by slot and generation.
//!
//! A [`Handle`] may be sent to a peer and come back. It gives access to the slot only as long as the slot is in the use for
//! which the handle was made. A stale, forged or out-of-range handle finds nothing.
//!
//! ```
//! use towline_core::{arena::Arena, pool::Pool};
//!
//! let mut block = [0u8; 256];
//! let mut pool: Pool<u64> = Pool::new(&mut Arena::new(&mut block), 2).unwrap();
//! let first = pool.take(7).unwrap();
//! let _second = pool.take(8).unwrap();
//! assert_eq!(pool.take(9), Err(9)); // full: the value comes back
//! assert_eq!(pool.free(first), Some(7));
//! assert_eq!(pool.get(first), None); // the handle is stale now
//! ```

use zerocopy::FromZeros;

use crate::arena::{Arena, OutOfMemory};

/// Names one use of one slot of a pool. Plain data: it may be sent to a peer as a `u64` and checked when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Handle {
    slot: u32,
    /// Odd, as that of a slot in use: one comparison tells whether the handle is good. 0 in [`Handle::NONE`] only, which
    /// names a slot that no pool has.
    generation: u32,
}

impl Handle {
    /// A handle that no pool ever gives out.
    pub const NONE: Self = Self { slot: u32::MAX, generation: 0 };

    /// The handle as one word: slot in the low half, generation in the high half; 0 for [`NONE`](Self::NONE).
    #[inline]
    pub const fn to_bits(self) -> u64 {
        if self.generation == 0 { 0 } else { (self.generation as u64) << 32 | self.slot as u64 }
    }

    /// The handle that [`to_bits`](Self::to_bits) gave, or any other that a peer may have made up.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        let generation = (bits >> 32) as u32;
        if generation & 1 == 0 { Self::NONE } else { Self { slot: bits as u32, generation } }
    }

    /// The handle as a word to compare, unlike that of any other.
    #[inline(always)]
    pub(crate) const fn word(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    /// The slot's index, for tables that run beside a pool.
    #[inline]
    pub const fn slot(self) -> u32 {
        self.slot
    }
}

/// One slot: the item and the pool's data about it. Public for `size_of` only.
#[derive(FromZeros, Debug)]
#[repr(C)]
pub struct Slot<T> {
    /// Odd while in use. It counts both takes and frees, so a handle is good for exactly one use.
    generation: u32,
    /// While free, the next free slot; [`NO_SLOT`] at the end of the list.
    next: u32,
    item: T,
}

/// No slot: pools have fewer (see [`Pool::new`]), so one look at the bounds tells.
const NO_SLOT: u32 = u32::MAX;

/// A fixed number of slots over given memory. Slots that were never used are never touched.
#[derive(Debug)]
pub struct Pool<'m, T> {
    slots: &'m mut [Slot<T>],
    /// First of the slots that were given back.
    free: u32,
    /// Slots below this were in use at least once.
    touched: u32,
    used: u32,
}

impl<'m, T: FromZeros + Copy> Pool<'m, T> {
    /// A pool of `count` slots cut from `arena`.
    ///
    /// # Errors
    /// [`OutOfMemory`] where the arena is too small.
    pub fn new(arena: &mut Arena<'m>, count: u32) -> Result<Self, OutOfMemory> {
        // One less than u32::MAX slots at most, since links hold the index plus one, and one index is none.
        let count = if count == NO_SLOT { count - 1 } else { count };
        Ok(Self { slots: arena.table(count as usize)?, free: NO_SLOT, touched: 0, used: 0 })
    }

    /// Bytes that a pool of `count` slots takes from an arena at most.
    pub const fn cost(count: u32) -> usize {
        Arena::cost::<Slot<T>>(count as usize)
    }

    /// Puts `item` into a free slot.
    ///
    /// # Errors
    /// The item itself, where no slot is free.
    #[inline]
    pub fn take(&mut self, item: T) -> Result<Handle, T> {
        let Some((handle, place)) = self.take_uncleared() else { return Err(item) };
        *place = item;
        Ok(handle)
    }

    /// Takes a free slot as it was left, or zeroed where it never was used: for items of which few fields matter at first.
    /// `None` where no slot is free.
    #[inline]
    pub fn take_uncleared(&mut self) -> Option<(Handle, &mut T)> {
        if self.free as usize >= self.slots.len() {
            return self.take_untouched();
        }
        self.take_given_back()
    }

    #[inline(always)]
    fn take_given_back(&mut self) -> Option<(Handle, &mut T)> {
        let index = self.free;
        let slot = self.slots.get_mut(index as usize)?;
        self.free = slot.next;
        slot.generation = slot.generation.wrapping_add(1);
        self.used = self.used.wrapping_add(1);
        Some((Handle { slot: index, generation: slot.generation }, &mut slot.item))
    }

    /// As [`take_uncleared`](Self::take_uncleared), where no slot was given back.
    #[cold]
    fn take_untouched(&mut self) -> Option<(Handle, &mut T)> {
        self.slots.get_mut(self.touched as usize)?.next = NO_SLOT;
        self.free = self.touched;
        self.touched = self.touched.wrapping_add(1);
        self.take_given_back()
    }

    /// Takes the item out and frees the slot. `None` for a handle that is stale or was never given out.
    #[inline]
    pub fn free(&mut self, handle: Handle) -> Option<T> {
        self.free_if(handle, |_| true).copied()
    }

    /// Frees the slot and leaves the item readable until the next take, provided that `condition` holds for it.
    #[inline(always)]
    pub(crate) fn free_if(&mut self, handle: Handle, condition: impl FnOnce(&T) -> bool) -> Option<&T> {
        let slot = self.slots.get_mut(handle.slot as usize)?;
        if slot.generation != handle.generation || !condition(&slot.item) {
            return None;
        }
        slot.generation = slot.generation.wrapping_add(1);
        slot.next = self.free;
        self.free = handle.slot;
        self.used = self.used.wrapping_sub(1);
        Some(&slot.item)
    }

    /// The item of a handle, `None` if the handle is stale or was never given out.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&T> {
        let slot = self.slots.get(handle.slot as usize)?;
        (slot.generation == handle.generation).then_some(&slot.item)
    }

    /// The item of a handle, `None` if the handle is stale or was never given out.
    #[inline]
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let slot = self.slots.get_mut(handle.slot as usize)?;
        (slot.generation == handle.generation).then_some(&mut slot.item)
    }

    /// The handle of the use that a slot is in now: for lists that link slots by index.
    #[inline]
    pub fn handle(&self, slot: u32) -> Option<Handle> {
        let generation = self.slots.get(slot as usize)?.generation;
        (generation & 1 == 1).then_some(Handle { slot, generation })
    }

    /// The item in a slot that is in use, by index: for lists that link slots by index.
    #[inline]
    pub fn at(&self, slot: u32) -> Option<&T> {
        let slot = self.slots.get(slot as usize)?;
        (slot.generation & 1 == 1).then_some(&slot.item)
    }

    /// The item in a slot that is in use, by index: for lists that link slots by index.
    #[inline]
    pub fn at_mut(&mut self, slot: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut(slot as usize)?;
        (slot.generation & 1 == 1).then_some(&mut slot.item)
    }

    /// The item in a slot of which the caller knows that it is in use.
    #[inline(always)]
    pub(crate) fn in_use_mut(&mut self, slot: u32) -> Option<&mut T> {
        Some(&mut self.slots.get_mut(slot as usize)?.item)
    }

    /// Slots in all.
    pub const fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Slots in use.
    #[inline]
    pub const fn used(&self) -> u32 {
        self.used
    }

    /// All slots that ever were in use are below this.
    pub const fn touched(&self) -> u32 {
        self.touched
    }

    /// The most slots that ever were in use at once: a slot is touched for the first time when no other is free.
    pub const fn most_used(&self) -> u32 {
        self.touched
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{vec, vec::Vec};

    #[test]
    fn stale_and_forged_handles_find_nothing() {
        let mut block = [0u8; 128];
        let mut pool: Pool<u32> = Pool::new(&mut Arena::new(&mut block), 3).unwrap();
        let old = pool.take(1).unwrap();
        assert_eq!(pool.free(old), Some(1));
        let new = pool.take(2).unwrap();
        assert_eq!(new.slot(), old.slot());
        assert_eq!(pool.free(old), None);
        assert_eq!(pool.get(Handle::from_bits(u64::MAX)), None);
        assert_eq!(pool.get(Handle::NONE), None);
        assert_eq!(pool.get(Handle::from_bits(new.to_bits() + 1)), None);
        // An even generation belongs to a free slot, never to a handle.
        let free = Handle::from_bits(new.to_bits() + (1 << 32));
        pool.free(new).unwrap();
        assert_eq!(pool.free(free), None);
        assert_eq!((pool.get(free), pool.at(0)), (None, None));
    }

    proptest! {
        #[test]
        fn behaves_like_a_map(ops in prop::collection::vec((any::<bool>(), any::<u8>()), 0..400)) {
            let mut block = vec![0u8; 1024];
            let mut pool: Pool<u8> = Pool::new(&mut Arena::new(&mut block), 7).unwrap();
            let mut model: Vec<(Handle, u8)> = Vec::new();
            for (take, value) in ops {
                if take {
                    match pool.take(value) {
                        Ok(handle) => model.push((handle, value)),
                        Err(back) => prop_assert!(back == value && model.len() == 7),
                    }
                } else if !model.is_empty() {
                    let (handle, value) = model.swap_remove(value as usize % model.len());
                    prop_assert_eq!(pool.free(handle), Some(value));
                    prop_assert_eq!(pool.free(handle), None);
                }
                prop_assert_eq!(pool.used() as usize, model.len());
                for (handle, value) in &model {
                    prop_assert_eq!(pool.get(*handle), Some(value));
                }
            }
        }
    }
}
