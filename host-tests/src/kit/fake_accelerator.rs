//! An accelerator whose memory is the processor's, at addresses that nobody can touch.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use towline_core::convertor::Accelerator;

/// No address of a process has this bit alone of those above the 48th: who touches one dies.
const FAR_BIT: usize = 1 << 55;

/// Counts what it copies.
#[derive(Debug, Default)]
pub struct FakeAccelerator {
    /// Bytes, both ways.
    pub copied: AtomicU64,
}

impl FakeAccelerator {
    /// How memory is called that is to be touched by the accelerator alone.
    pub fn name(at: *mut u8) -> *mut u8 {
        at.map_addr(|at| at ^ FAR_BIT)
    }
}

impl Accelerator for FakeAccelerator {
    unsafe fn read(&self, from: *const u8, to: *mut u8, len: usize) {
        self.copied.fetch_add(len as u64, Relaxed);
        // SAFETY: the caller vouches for both sides, and `from` is memory with another name.
        unsafe { Self::name(from.cast_mut()).copy_to_nonoverlapping(to, len) };
    }

    unsafe fn write(&self, from: *const u8, to: *mut u8, len: usize) {
        self.copied.fetch_add(len as u64, Relaxed);
        // SAFETY: the same, with `to`.
        unsafe { Self::name(to).copy_from_nonoverlapping(from, len) };
    }
}
