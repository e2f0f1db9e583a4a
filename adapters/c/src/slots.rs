//! Objects behind handles: each has a slot, and a generation by which a handle of an earlier object is told apart.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use parking_lot::Mutex;

/// Objects of one kind. Finding one takes no lock.
///
/// An object must not be used by one thread while another thread removes it; all other calls may run at the same time.
pub(crate) struct Slots<T> {
    slots: Box<[AtomicPtr<Entry<T>>]>,
    /// The numbers of free slots.
    free: Mutex<Vec<u32>>,
}

struct Entry<T> {
    handle: u64,
    object: T,
}

/// The generation of the last object, of any kind: a handle is not valid for the objects of another context either.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Bits of a handle that are the number of the slot.
const SLOT_BITS: u32 = 24;
/// Bits of a handle that [`Slots`] leaves to its user.
const SPARE_BITS: u32 = 8;

impl<T> Slots<T> {
    /// Room for `count` objects, at most 2^24.
    pub fn new(count: u32) -> Self {
        let count = count.min(1 << SLOT_BITS);
        let slots = (0..count).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Self { slots, free: Mutex::new((0..count).rev().collect()) }
    }

    /// Keeps an object. Returns its handle, which is never 0 and whose upper 8 bits are 0. `None`: all slots are in use.
    pub fn insert(&self, object: T) -> Option<u64> {
        let slot = self.free.lock().pop()?;
        let generation = GENERATION.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        let handle = u64::from(generation) << SLOT_BITS | u64::from(slot);
        let entry = Box::into_raw(Box::new(Entry { handle, object }));
        self.slots.get(slot as usize)?.store(entry, Ordering::Release);
        Some(handle)
    }

    /// The object of a handle. `None`: there is no such object.
    #[inline]
    pub fn get(&self, handle: u64) -> Option<&T> {
        let entry = self.entry(slot_of(handle))?;
        (entry.handle == handle).then_some(&entry.object)
    }

    /// The object in a slot.
    #[inline]
    pub fn at(&self, slot: usize) -> Option<&T> {
        self.entry(slot).map(|entry| &entry.object)
    }

    #[inline]
    fn entry(&self, slot: usize) -> Option<&Entry<T>> {
        let entry = self.slots.get(slot)?.load(Ordering::Acquire);
        // SAFETY: the slot has an entry that `insert` has made, or nothing. Nobody removes it meanwhile: see `Slots`.
        unsafe { entry.as_ref() }
    }

    /// Takes an object out. `None`: there is no such object.
    pub fn remove(&self, handle: u64) -> Option<T> {
        let mut free = self.free.lock();
        self.get(handle)?;
        let entry = self.slots.get(slot_of(handle))?.swap(ptr::null_mut(), Ordering::AcqRel);
        free.push(slot_of(handle) as u32);
        // SAFETY: `insert` has made it from a box, and no other call can find it any more.
        Some(unsafe { Box::from_raw(entry) }.object)
    }

    /// Takes all objects out.
    pub fn drain(&self) -> Vec<T> {
        let slots = 0..self.slots.len();
        let handles: Vec<u64> = slots.filter_map(|slot| self.entry(slot).map(|entry| entry.handle)).collect();
        handles.into_iter().filter_map(|handle| self.remove(handle)).collect()
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        self.drain();
    }
}

/// The slot of a handle.
pub(crate) const fn slot_of(handle: u64) -> usize {
    (handle & ((1 << SLOT_BITS) - 1)) as usize
}

/// A handle with a number below 256 in its spare bits.
pub(crate) const fn with_owner(handle: u64, owner: u64) -> u64 {
    handle | owner << (u64::BITS - SPARE_BITS)
}

/// The number in the spare bits of a handle, and the handle without it.
#[inline]
pub(crate) const fn split_owner(handle: u64) -> (u64, u64) {
    (handle >> (u64::BITS - SPARE_BITS), handle & (u64::MAX >> SPARE_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_and_invented_handles_find_nothing() {
        let slots = Slots::new(2);
        let (one, other) = (slots.insert("one").unwrap(), slots.insert("other").unwrap());
        assert_eq!((slots.insert("more"), slots.get(one), slots.get(other)), (None, Some(&"one"), Some(&"other")));
        assert_eq!((slots.remove(one), slots.remove(one), slots.get(one)), (Some("one"), None, None));
        let again = slots.insert("again").unwrap();
        assert_ne!(again, one);
        assert_eq!((slots.get(one), slots.get(again)), (None, Some(&"again")));
        assert_eq!((slots.at(slot_of(again)), slots.at(2)), (Some(&"again"), None));
        for invented in [0, 1, u64::MAX, again ^ 1 << SLOT_BITS, again | 1 << 60, 7] {
            assert_eq!(slots.get(invented), None, "{invented:x}");
        }
        assert_eq!(slots.drain().len(), 2);
        assert_eq!(slots.get(again), None);
    }

    #[test]
    fn an_owner_is_kept_beside_the_handle() {
        let handle = Slots::new(1).insert(()).unwrap();
        assert_eq!(split_owner(with_owner(handle, 200)), (200, handle));
    }
}
