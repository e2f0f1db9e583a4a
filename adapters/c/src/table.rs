//! The tables of a process. Each is made when it is first used.

use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::slots::Slots;

/// Slots that are made at their first use. If two threads make them at the same time, one of them wins, and neither waits: a thread
/// that makes them may be missing in a child that is forked meanwhile.
pub(crate) struct Table<T> {
    slots: AtomicPtr<Slots<T>>,
    count: u32,
}

impl<T> Table<T> {
    /// A table with room for `count` objects.
    pub const fn new(count: u32) -> Self {
        Self { slots: AtomicPtr::new(ptr::null_mut()), count }
    }

    #[cold]
    fn make(&self) -> *const Slots<T> {
        let made = Box::into_raw(Box::new(Slots::new(self.count)));
        match self.slots.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(other) => {
                // SAFETY: made above, and nobody else has seen it.
                drop(unsafe { Box::from_raw(made) });
                other
            }
        }
    }
}

impl<T> Deref for Table<T> {
    type Target = Slots<T>;

    #[inline]
    fn deref(&self) -> &Slots<T> {
        let made: *const Slots<T> = self.slots.load(Ordering::Acquire);
        let slots = if made.is_null() { self.make() } else { made };
        // SAFETY: the slots are never changed for others, nor freed: the tables are static.
        unsafe { &*slots }
    }
}
