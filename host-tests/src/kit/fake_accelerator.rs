//! A fake accelerator: its memory is ordinary memory, at addresses that the processor cannot access.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use towline_core::convertor::Accelerator;

/// The bit that makes an address inaccessible: no valid address has this bit alone of those above the 48th, so an
/// access kills the process.
const FAR_BIT: usize = 1 << 55;

/// An accelerator that counts the bytes that it copies.
#[derive(Debug, Default)]
pub struct FakeAccelerator {
    /// Bytes copied, in both directions.
    pub copied: AtomicU64,
}

impl FakeAccelerator {
    /// The inaccessible address of memory that only the accelerator may access.
    pub fn name(at: *mut u8) -> *mut u8 {
        at.map_addr(|at| at ^ FAR_BIT)
    }
}

impl Accelerator for FakeAccelerator {
    unsafe fn read(&self, from: *const u8, to: *mut u8, len: usize) {
        self.copied.fetch_add(len as u64, Relaxed);
        // SAFETY: the caller guarantees that both sides are valid, and `name` gives the accessible address of `from`.
        unsafe { Self::name(from.cast_mut()).copy_to_nonoverlapping(to, len) };
    }

    unsafe fn write(&self, from: *const u8, to: *mut u8, len: usize) {
        self.copied.fetch_add(len as u64, Relaxed);
        // SAFETY: as in `read`, with `to`.
        unsafe { Self::name(to).copy_from_nonoverlapping(from, len) };
    }
}
