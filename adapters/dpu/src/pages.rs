//! Memory of this process for the copies of long messages. The device writes there, so no reference to it exists.

use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Zeroed memory, which is returned when this is dropped.
#[derive(Debug)]
pub struct Pages {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is an address and a size, and belongs to the process.
unsafe impl Send for Pages {}

impl Pages {
    /// Takes that many bytes, at least one. `None` if the operating system does not give them.
    pub fn new(bytes: usize) -> Option<Self> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: this maps new memory.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, rights, MapFlags::PRIVATE) }.ok()?;
        Some(Self { base: NonNull::new(base.cast())?, bytes })
    }

    /// The address of the first byte.
    pub const fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this memory was mapped by `new`, and its users are gone. A failure leaves it mapped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
