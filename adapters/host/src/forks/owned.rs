//! Values that belong to the process that made them.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use super::handlers::forks;

/// A process, as forked children tell it from themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    forks: u32,
    /// The system's number of the process.
    pub id: u32,
}

impl Process {
    /// The calling process.
    pub fn this() -> Self {
        Self { forks: forks(), id: std::process::id() }
    }

    /// Whether the calling process is this one, and not a child that was forked.
    #[inline]
    pub fn is_this(self) -> bool {
        self.forks == forks()
    }
}

/// A value that only the process that made it drops. A child that was forked leaves its copy as it is, since the value stands for
/// something that both processes have: a connection, shared memory, a thread.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    value: ManuallyDrop<T>,
    owner: Process,
}

impl<T> Owned<T> {
    pub fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), owner: Process::this() }
    }

    /// The process that made it.
    pub fn owner(&self) -> Process {
        self.owner
    }
}

impl<T> Deref for Owned<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Owned<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.owner.is_this() {
            // SAFETY: this runs once, and nothing uses the value afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
