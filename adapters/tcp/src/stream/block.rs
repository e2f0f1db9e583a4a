//! A run of bytes reached by address alone, as the kernel and grants take them.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Owned bytes, zero at first. The system gives memory to large ones only as they are touched.
#[derive(Debug)]
pub(crate) struct Block {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block owns its memory; access is through addresses and argued for where it happens.
unsafe impl Send for Block {}

impl Block {
    pub(crate) fn new(len: usize) -> Self {
        let layout = Layout::array::<u8>(len.max(1)).expect("sizes are limited by Config::sane");
        // SAFETY: the layout is not of size zero.
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
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}
