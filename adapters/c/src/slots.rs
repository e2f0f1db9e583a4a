//! Objects behind handles: each has a slot, and a generation by which a handle of an earlier object is told apart.

use std::sync::PoisonError;
use std::sync::atomic::AtomicU32;

use cell::UnsafeCell;
use sync::{AtomicU64, Mutex, Ordering};

#[cfg(not(loom))]
mod sync {
    pub use std::sync::Mutex;
    pub use std::sync::atomic::{AtomicU64, Ordering};
}
#[cfg(loom)]
mod sync {
    pub use loom::sync::Mutex;
    pub use loom::sync::atomic::{AtomicU64, Ordering};
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

/// Objects of one kind. Finding one takes no lock, and a wrong handle finds none, whatever other threads do meanwhile.
///
/// An object must not be used by one thread while another thread removes it; all other calls may run at the same time.
pub(crate) struct Slots<T> {
    slots: Box<[Slot<T>]>,
    /// The numbers of free slots.
    free: Mutex<Vec<u32>>,
}

struct Slot<T> {
    /// The handle of the object; 0 for none.
    handle: AtomicU64,
    object: UnsafeCell<Option<T>>,
}

// SAFETY: the object of a slot is written while the slot is free, or by the one thread that removes it; otherwise it is read only.
unsafe impl<T: Send + Sync> Sync for Slots<T> {}

/// The generation of the last object, of any kind: a handle is not valid for the objects of another context either.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Bits of a handle that are the number of the slot.
const SLOT_BITS: u32 = 24;

impl<T> Slots<T> {
    /// Room for `count` objects, at most 2^24.
    pub fn new(count: u32) -> Self {
        let count = count.min(1 << SLOT_BITS);
        let slots = (0..count).map(|_| Slot { handle: AtomicU64::new(0), object: UnsafeCell::new(None) }).collect();
        Self { slots, free: Mutex::new((0..count).rev().collect()) }
    }

    /// Keeps an object. Returns its handle, which is never 0. `None`: all slots are in use.
    pub fn insert(&self, object: T) -> Option<u64> {
        let number = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        let generation = GENERATION.fetch_add(1, core::sync::atomic::Ordering::Relaxed).wrapping_add(1).max(1);
        let handle = u64::from(generation) << SLOT_BITS | u64::from(number);
        let slot = self.slots.get(number as usize)?;
        // SAFETY: the slot was free, so no other thread reads its object before the handle is there.
        slot.object.with_mut(|place| unsafe { *place = Some(object) });
        slot.handle.store(handle, Ordering::Release);
        Some(handle)
    }

    /// The object of a handle. `None`: there is no such object.
    #[inline]
    pub fn get(&self, handle: u64) -> Option<&T> {
        let slot = self.slots.get(slot_of(handle))?;
        if handle == 0 || slot.handle.load(Ordering::Acquire) != handle {
            return None;
        }
        // SAFETY: `insert` has written the object before the handle, and nobody removes it meanwhile: see `Slots`.
        slot.object.with(|place| unsafe { &*place }).as_ref()
    }

    /// Whether all slots are in use now.
    pub fn is_full(&self) -> bool {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Takes an object out. `None`: there is no such object.
    pub fn remove(&self, handle: u64) -> Option<T> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = self.slots.get(slot_of(handle))?;
        if handle == 0 || slot.handle.load(Ordering::Acquire) != handle {
            return None;
        }
        slot.handle.store(0, Ordering::Relaxed);
        // SAFETY: the lock makes this the only call that takes it, and nobody uses it meanwhile: see `Slots`.
        let object = slot.object.with_mut(|place| unsafe { (*place).take() });
        free.push(slot_of(handle) as u32);
        object
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
        assert!(slots.is_full());
        for invented in [0, 1, u64::MAX, again ^ 1 << SLOT_BITS, again | 1 << 60, 7] {
            assert_eq!((slots.get(invented), slots.remove(invented)), (None, None), "{invented:x}");
        }
        assert_eq!((slots.remove(again), slots.get(again), slots.is_full()), (Some("again"), None, false));
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
}
