//! Objects behind handles: each has a slot, and a generation by which a handle of an earlier object is told apart.

use std::sync::atomic::AtomicU32 as Count;

use cell::UnsafeCell;
use sync::{AtomicU32, AtomicU64, Ordering};

#[cfg(not(loom))]
mod sync {
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}
#[cfg(loom)]
mod sync {
    pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}
#[cfg(loom)]
use loom::cell;

/// A cell with the interface that loom has.
#[cfg(not(loom))]
mod cell {
    #[derive(Debug)]
    pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub const fn new(value: T) -> Self {
            Self(core::cell::UnsafeCell::new(value))
        }

        #[inline]
        pub fn with<R>(&self, body: impl FnOnce(*const T) -> R) -> R {
            body(self.0.get())
        }

        #[inline]
        pub fn with_mut<R>(&self, body: impl FnOnce(*mut T) -> R) -> R {
            body(self.0.get())
        }
    }
}

/// Objects of one kind. No function takes a lock, so that a forked child waits for no thread that it does not have. A wrong handle
/// finds nothing, whatever other threads do meanwhile.
///
/// An object must not be used by one thread while another thread removes it; all other calls may run at the same time.
pub(crate) struct Slots<T> {
    slots: Box<[Slot<T>]>,
    /// The first slot of the list of free ones: its [`Link`], and above it the number of changes of the list, by which a thread
    /// notices that others have taken this slot and given it back meanwhile.
    free: AtomicU64,
}

struct Slot<T> {
    /// The handle of the object; 0 for none.
    handle: AtomicU64,
    object: UnsafeCell<Option<T>>,
    /// The next slot in the list of free ones.
    next: AtomicU32,
}

/// The number of a slot plus 1; 0 for none.
type Link = u32;

// SAFETY: the object of a slot is written by the thread that has reserved the slot, or by the one that removes the object; otherwise
// it is read only.
unsafe impl<T: Send + Sync> Sync for Slots<T> {}

/// The generation of the last object, of any kind: a handle is not valid for the objects of another context either.
static GENERATION: Count = Count::new(0);

/// Bits of a handle that are the number of the slot.
const SLOT_BITS: u32 = 24;

impl<T> Slots<T> {
    /// Room for `count` objects, at most 2^24.
    pub fn new(count: u32) -> Self {
        let count = count.min(1 << SLOT_BITS);
        let slot = |number| Slot {
            handle: AtomicU64::new(0),
            object: UnsafeCell::new(None),
            next: AtomicU32::new(if number + 1 == count { 0 } else { number + 2 }),
        };
        Self { slots: (0..count).map(slot).collect(), free: AtomicU64::new(count.min(1).into()) }
    }

    /// Reserves a slot for one object. `None`: all slots are in use.
    pub fn reserve(&self) -> Option<Reserved<'_, T>> {
        let mut first = self.free.load(Ordering::Acquire);
        loop {
            let number = (first as Link).checked_sub(1)?;
            let next = self.slots.get(number as usize)?.next.load(Ordering::Relaxed);
            match self.free.compare_exchange_weak(first, changed(first, next), Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(Reserved { slots: self, number }),
                Err(other) => first = other,
            }
        }
    }

    /// Keeps an object. Returns its handle, which is never 0. `None`: all slots are in use.
    pub fn insert(&self, object: T) -> Option<u64> {
        Some(self.reserve()?.fill(object))
    }

    /// The object of a handle. `None`: there is no such object.
    #[inline]
    pub fn get(&self, handle: u64) -> Option<&T> {
        let slot = self.slots.get(slot_of(handle))?;
        if handle == 0 || slot.handle.load(Ordering::Acquire) != handle {
            return None;
        }
        // SAFETY: `fill` has written the object before the handle, and nobody removes it meanwhile: see `Slots`.
        slot.object.with(|place| unsafe { &*place }).as_ref()
    }

    /// Takes an object out. `None`: there is no such object.
    pub fn remove(&self, handle: u64) -> Option<T> {
        let slot = self.slots.get(slot_of(handle))?;
        if handle == 0 || slot.handle.compare_exchange(handle, 0, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return None;
        }
        // SAFETY: one call alone takes the handle away, and nobody uses the object meanwhile: see `Slots`.
        let object = slot.object.with_mut(|place| unsafe { (*place).take() });
        self.give_back(slot_of(handle) as u32);
        object
    }

    /// Adds a slot to the list of free ones.
    fn give_back(&self, number: u32) {
        let Some(slot) = self.slots.get(number as usize) else { return };
        let mut first = self.free.load(Ordering::Relaxed);
        loop {
            slot.next.store(first as Link, Ordering::Relaxed);
            // What was done to the slot is visible to the thread that reserves it next.
            let with = changed(first, number + 1);
            match self.free.compare_exchange_weak(first, with, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => first = other,
            }
        }
    }
}

/// The list of free slots with another first one, after one more change.
const fn changed(first: u64, link: Link) -> u64 {
    ((first >> 32).wrapping_add(1) << 32) | link as u64
}

/// A slot that is reserved for an object. It is free again if it is dropped.
pub(crate) struct Reserved<'a, T> {
    slots: &'a Slots<T>,
    number: u32,
}

impl<T> Reserved<'_, T> {
    /// Keeps an object in the slot. Returns its handle, which is never 0.
    pub fn fill(self, object: T) -> u64 {
        let Self { slots, number } = self;
        std::mem::forget(self); // it is in use
        let generation = GENERATION.fetch_add(1, core::sync::atomic::Ordering::Relaxed).wrapping_add(1).max(1);
        let handle = u64::from(generation) << SLOT_BITS | u64::from(number);
        let Some(slot) = slots.slots.get(number as usize) else { return 0 };
        // SAFETY: the slot is reserved by this, and no other thread reads its object before the handle is there.
        slot.object.with_mut(|place| unsafe { *place = Some(object) });
        slot.handle.store(handle, Ordering::Release);
        handle
    }
}

impl<T> Drop for Reserved<'_, T> {
    fn drop(&mut self) {
        self.slots.give_back(self.number);
    }
}

/// The slot of a handle.
const fn slot_of(handle: u64) -> usize {
    (handle & ((1 << SLOT_BITS) - 1)) as usize
}

#[cfg(all(test, not(loom)))]
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
        assert!(slots.reserve().is_none());
        for invented in [0, 1, u64::MAX, again ^ 1 << SLOT_BITS, again | 1 << 60, 7] {
            assert_eq!((slots.get(invented), slots.remove(invented)), (None, None), "{invented:x}");
        }
        assert_eq!((slots.remove(again), slots.get(again)), (Some("again"), None));
    }

    #[test]
    fn a_reserved_slot_is_free_again_if_nothing_is_kept_in_it() {
        let slots = Slots::new(2);
        let (one, other) = (slots.reserve().unwrap(), slots.reserve().unwrap());
        assert!(slots.reserve().is_none());
        drop(one);
        let handles = [other.fill("other"), slots.insert("one").unwrap()];
        assert_eq!(handles.map(|handle| slots.get(handle)), [Some(&"other"), Some(&"one")]);
        assert!(slots.reserve().is_none() && Slots::<u8>::new(0).reserve().is_none());
    }
}

/// Models of the slots: all orders of the steps of two threads.
#[cfg(all(test, loom))]
mod models {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn an_object_is_complete_when_its_slot_shows_it() {
        loom::model(|| {
            let slots = Arc::new(Slots::new(1));
            let writer = Arc::clone(&slots);
            let thread = loom::thread::spawn(move || writer.insert(7));
            // The handle that the slot has by now, as a program may invent it.
            let invented = slots.slots[0].handle.load(Ordering::Relaxed);
            let seen = slots.get(invented).copied();
            assert!(seen.is_none() || seen == Some(7));
            let handle = thread.join().unwrap().unwrap();
            assert_eq!(slots.get(handle), Some(&7));
        });
    }

    #[test]
    fn a_stale_handle_finds_nothing_while_its_slot_is_used_again() {
        loom::model(|| {
            let slots = Arc::new(Slots::new(1));
            let stale = slots.insert(1).unwrap();
            slots.remove(stale);
            let writer = Arc::clone(&slots);
            let thread = loom::thread::spawn(move || {
                let handle = writer.insert(2).unwrap();
                writer.remove(handle)
            });
            assert_eq!((slots.get(stale), slots.remove(stale)), (None, None));
            assert_eq!(thread.join().unwrap(), Some(2));
        });
    }

    #[test]
    fn one_of_two_threads_takes_an_object() {
        loom::model(|| {
            let slots = Arc::new(Slots::new(1));
            let handle = slots.insert(1).unwrap();
            let other = Arc::clone(&slots);
            let thread = loom::thread::spawn(move || other.remove(handle));
            let taken = (slots.remove(handle), thread.join().unwrap());
            assert!(taken == (Some(1), None) || taken == (None, Some(1)), "{taken:?}");
        });
    }

    #[test]
    fn threads_that_insert_and_remove_have_slots_of_their_own() {
        loom::model(|| {
            let slots = Arc::new(Slots::new(2));
            let first = slots.insert(1).unwrap();
            let other = Arc::clone(&slots);
            let thread = loom::thread::spawn(move || {
                let handle = other.insert(2).unwrap();
                assert_eq!(other.get(handle), Some(&2));
                handle
            });
            assert_eq!(slots.remove(first), Some(1));
            let again = slots.insert(3).unwrap();
            let second = thread.join().unwrap();
            assert_eq!((slots.get(again), slots.get(second)), (Some(&3), Some(&2)));
            assert!(slots.reserve().is_none());
        });
    }
}
