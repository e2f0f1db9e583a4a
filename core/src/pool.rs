//! Pools: a fixed number of slots for items of one type. Slots are taken and freed in constant time, and named by slot and
//! generation.
//!
//! A [`Handle`] may be sent to a peer and come back. It finds its slot only during the use of the slot for which it was given
//! out. A stale, forged or out-of-range handle finds nothing.
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

/// Whether a pool has a list of its free slots, or searches for one: the feature `indexes`.
const FREE_LIST: bool = cfg!(feature = "indexes");

/// The handle of one use of one slot of a pool. It may be sent to a peer as a `u64`, and is checked when it comes back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Handle {
    slot: u32,
    /// Odd, like the generation of a slot in use, so one comparison is enough to check a handle. Only [`Handle::NONE`] has 0,
    /// and a slot that no pool has.
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

    /// The handle from the result of [`to_bits`](Self::to_bits), or from any word that a peer has made up.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        let generation = (bits >> 32) as u32;
        if generation & 1 == 0 { Self::NONE } else { Self { slot: bits as u32, generation } }
    }

    /// The handle as a word to compare. Different handles have different words.
    #[inline(always)]
    pub(crate) const fn word(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    /// The index of the slot, for tables parallel to a pool.
    #[inline]
    pub const fn slot(self) -> u32 {
        self.slot
    }
}

/// One slot: an item, and the state of the slot. It is public only for `size_of`.
#[derive(FromZeros, Debug)]
#[repr(C)]
pub struct Slot<T> {
    /// Odd while the slot is in use. It counts each take and each free, so a handle is valid for exactly one use.
    generation: u32,
    /// In a free slot: the next free slot, or [`NO_SLOT`] at the end of the list.
    next: u32,
    item: T,
}

/// No slot. Pools have fewer slots (see [`Pool::new`]), so the bounds check of the table refuses it.
const NO_SLOT: u32 = u32::MAX;

/// A fixed number of slots in memory from an arena. The memory of slots that were never used is never touched.
#[derive(Debug)]
pub struct Pool<'m, T> {
    slots: &'m mut [Slot<T>],
    /// The first slot in the list of freed slots.
    free: u32,
    /// The slots below this number were in use at least once.
    touched: u32,
    used: u32,
}

impl<'m, T: FromZeros + Copy> Pool<'m, T> {
    /// Makes a pool of `count` slots from `arena`.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the arena is too small.
    pub fn new(arena: &mut Arena<'m>, count: u32) -> Result<Self, OutOfMemory> {
        // At most u32::MAX - 1 slots, since links store the index plus one, and one index means none.
        let count = if count == NO_SLOT { count - 1 } else { count };
        Ok(Self { slots: arena.table(count as usize)?, free: NO_SLOT, touched: 0, used: 0 })
    }

    /// A pool without slots.
    pub(crate) const fn none() -> Self {
        Self { slots: &mut [], free: NO_SLOT, touched: 0, used: 0 }
    }

    /// The most bytes that a pool of `count` slots takes from an arena.
    pub const fn cost(count: u32) -> usize {
        Arena::cost::<Slot<T>>(count as usize)
    }

    /// Puts `item` into a free slot.
    ///
    /// # Errors
    /// The item, if no slot is free.
    #[inline]
    pub fn take(&mut self, item: T) -> Result<Handle, T> {
        let Some((handle, place)) = self.take_uncleared() else { return Err(item) };
        *place = item;
        Ok(handle)
    }

    /// Takes a free slot without clearing it: its item is the item of the last use, or zeros in the first use. It is for large
    /// items of which the caller sets only a few fields at first. `None` if no slot is free.
    #[inline]
    pub fn take_uncleared(&mut self) -> Option<(Handle, &mut T)> {
        if !FREE_LIST {
            return self.take_first_free();
        }
        if self.free as usize >= self.slots.len() {
            return self.take_first_use();
        }
        self.take_freed()
    }

    /// As [`take_uncleared`](Self::take_uncleared), by a search.
    fn take_first_free(&mut self) -> Option<(Handle, &mut T)> {
        let mut places = (0u32..).zip(self.slots.iter_mut());
        let (index, slot) = places.find(|(_, slot)| slot.generation & 1 == 0)?;
        slot.generation = slot.generation.wrapping_add(1);
        self.used = self.used.wrapping_add(1);
        self.touched = self.touched.max(index.wrapping_add(1));
        Some((Handle { slot: index, generation: slot.generation }, &mut slot.item))
    }

    #[inline(always)]
    fn take_freed(&mut self) -> Option<(Handle, &mut T)> {
        let index = self.free;
        let slot = self.slots.get_mut(index as usize)?;
        self.free = slot.next;
        slot.generation = slot.generation.wrapping_add(1);
        self.used = self.used.wrapping_add(1);
        Some((Handle { slot: index, generation: slot.generation }, &mut slot.item))
    }

    /// Takes a slot that was never used, as [`take_uncleared`](Self::take_uncleared) does if no freed slot is left.
    #[cold]
    fn take_first_use(&mut self) -> Option<(Handle, &mut T)> {
        self.slots.get_mut(self.touched as usize)?.next = NO_SLOT;
        self.free = self.touched;
        self.touched = self.touched.wrapping_add(1);
        self.take_freed()
    }

    /// Frees the slot, and returns its item. `None` if the handle is stale or was never given out.
    #[inline]
    pub fn free(&mut self, handle: Handle) -> Option<T> {
        self.free_if(handle, |_| true).copied()
    }

    /// Frees the slot if `condition` holds for its item. The item stays readable until the next take.
    #[inline(always)]
    pub(crate) fn free_if(&mut self, handle: Handle, condition: impl FnOnce(&T) -> bool) -> Option<&T> {
        let slot = self.slots.get_mut(handle.slot as usize)?;
        if slot.generation != handle.generation || !condition(&slot.item) {
            return None;
        }
        slot.generation = slot.generation.wrapping_add(1);
        if FREE_LIST {
            slot.next = self.free;
            self.free = handle.slot;
        }
        self.used = self.used.wrapping_sub(1);
        Some(&slot.item)
    }

    /// The item of a handle. `None` if the handle is stale or was never given out.
    #[inline]
    pub fn get(&self, handle: Handle) -> Option<&T> {
        let slot = self.slots.get(handle.slot as usize)?;
        (slot.generation == handle.generation).then_some(&slot.item)
    }

    /// The item of a handle. `None` if the handle is stale or was never given out.
    #[inline]
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let slot = self.slots.get_mut(handle.slot as usize)?;
        (slot.generation == handle.generation).then_some(&mut slot.item)
    }

    /// The handle of the present use of a slot, for lists that link slots by index. `None` if the slot is free.
    #[inline]
    pub fn handle(&self, slot: u32) -> Option<Handle> {
        let generation = self.slots.get(slot as usize)?.generation;
        (generation & 1 == 1).then_some(Handle { slot, generation })
    }

    /// The item of a slot in use, by index, for lists that link slots by index.
    #[inline]
    pub fn at(&self, slot: u32) -> Option<&T> {
        let slot = self.slots.get(slot as usize)?;
        (slot.generation & 1 == 1).then_some(&slot.item)
    }

    /// The item of a slot in use, by index, for lists that link slots by index.
    #[inline]
    pub fn at_mut(&mut self, slot: u32) -> Option<&mut T> {
        let slot = self.slots.get_mut(slot as usize)?;
        (slot.generation & 1 == 1).then_some(&mut slot.item)
    }

    /// The item of a slot that the caller knows to be in use.
    #[inline(always)]
    pub(crate) fn in_use_mut(&mut self, slot: u32) -> Option<&mut T> {
        Some(&mut self.slots.get_mut(slot as usize)?.item)
    }

    /// The number of slots.
    pub const fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The number of slots in use.
    #[inline]
    pub const fn used(&self) -> u32 {
        self.used
    }

    /// The slots that were ever in use are below this number.
    pub const fn touched(&self) -> u32 {
        self.touched
    }

    /// The most slots that were ever in use at once. A slot is used for the first time only if no freed slot is left.
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
