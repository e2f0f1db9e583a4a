//! Static memory.

use core::sync::atomic::{AtomicBool, Ordering};

/// `N` words of memory in `.bss`, which [`take`](Self::take) gives to one owner.
#[derive(Debug)]
pub struct Block<const N: usize> {
    taken: AtomicBool,
    bytes: core::cell::UnsafeCell<[u64; N]>,
}

// SAFETY: only `take` gives access to the bytes, and it succeeds once.
unsafe impl<const N: usize> Sync for Block<N> {}

impl<const N: usize> Block<N> {
    /// `N` words of zeros.
    pub const fn new() -> Self {
        Self { taken: AtomicBool::new(false), bytes: core::cell::UnsafeCell::new([0; N]) }
    }

    /// As [`take`](Self::take), without touching the bytes.
    pub fn take_zeros(&'static self) -> Option<Zeros> {
        self.take().map(Zeros)
    }

    /// The bytes, which are zero. The second call and all later ones return `None`.
    #[expect(clippy::mut_from_ref, reason = "only one call returns the bytes")]
    pub fn take(&'static self) -> Option<&'static mut [u8]> {
        if self.taken.swap(true, Ordering::AcqRel) {
            return None;
        }
        // SAFETY: only the first call gets here. The array has `N` words, is initialised, and is static.
        Some(unsafe { core::slice::from_raw_parts_mut(self.bytes.get().cast(), N * 8) })
    }
}

/// Bytes of a [`Block`] that nobody has written, so that all of them are zero.
#[derive(Debug)]
pub struct Zeros(&'static mut [u8]);

impl Zeros {
    /// The bytes.
    pub const fn into_bytes(self) -> &'static mut [u8] {
        self.0
    }
}

impl<const N: usize> Default for Block<N> {
    fn default() -> Self {
        Self::new()
    }
}
