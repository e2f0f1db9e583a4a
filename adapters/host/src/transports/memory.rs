//! The engine's memory: one private mapping, of which the kernel gives only pages that are touched. And that of windows.

use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use towline_core::arena::Arena;

/// Zeroed memory that costs address space only, until it is used.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: an address and a length, which say nothing of threads; who goes to the memory sees to it that nobody else is there.
unsafe impl Send for Mapping {}
// SAFETY: the same.
unsafe impl Sync for Mapping {}

impl Mapping {
    pub fn new(len: usize) -> std::io::Result<Self> {
        let len = len.max(1);
        // SAFETY: a new private mapping at an address that the kernel chooses touches nothing that exists.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    /// Where it begins.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// An arena over all of it.
    ///
    /// # Safety
    /// Called once, and whatever is cut from the arena is gone when the mapping is dropped.
    pub unsafe fn arena(&self) -> Arena<'static> {
        // SAFETY: a fresh anonymous mapping is zeroed, readable and writable, and nobody else knows of it; the caller sees
        // to it that it outlives its users.
        unsafe { Arena::from_zeroed(self.base, self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and as `arena` was promised, nothing that was cut from it is left.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A rank's part of a window, all zero at first.
#[derive(Debug)]
pub(crate) enum WindowMemory {
    /// Peers on this host may map it.
    Shared(Arc<towline_sm::Area>),
    Private(Mapping),
}

impl WindowMemory {
    /// Where it begins.
    pub fn base(&self) -> *mut u8 {
        match self {
            Self::Shared(area) => area.base(),
            Self::Private(mapping) => mapping.base(),
        }
    }
}
