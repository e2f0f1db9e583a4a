//! A block of memory that is accessed by address only, as the kernel and grants do.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Owned bytes, zero at first. The system gives pages to a large block only as they are touched.
#[derive(Debug)]
pub(crate) struct Block {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block owns its memory. Each access goes by an address and carries its own argument.
unsafe impl Send for Block {}

impl Block {
    pub(crate) fn new(len: usize) -> Self {
        let layout = Layout::array::<u8>(len.max(1)).expect("sizes are limited by Config::clamped");
        // SAFETY: the size of the layout is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        Self { base, layout }
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.layout.size()
    }

    /// The address of byte `at`, which is at most `len`.
    #[inline]
    pub(crate) fn at(&self, at: usize) -> *mut u8 {
        debug_assert!(at <= self.len());
        self.base.as_ptr().wrapping_add(at)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated in `new` with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}
