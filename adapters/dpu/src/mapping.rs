//! The window's file, as this process maps it.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use towline_window::header::HEADER;
use towline_window::memory::Memory;

/// A mapped window. It is unmapped when this is dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is an address and a size, and belongs to the process.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps a file.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let bytes = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: this maps new memory.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, rights, MapFlags::SHARED, file.as_fd(), 0)? };
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("it was mapped to address 0"))?;
        Ok(Self { base, bytes })
    }

    /// Whether it is too small for the header of a window.
    pub const fn is_too_small(&self) -> bool {
        self.bytes < HEADER
    }

    /// The memory. Returns `None` if it cannot be a window.
    ///
    /// # Safety
    /// The result, and all copies of it, must not be used after this is dropped.
    pub unsafe fn memory(&self) -> Option<Memory<'static>> {
        // SAFETY: the memory is mapped until this is dropped, and no reference to it exists.
        unsafe { Memory::new(self.base, self.bytes) }
    }

    /// The address of its first byte.
    pub const fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this memory was mapped by `open`, and its users are gone, as they have promised. A failure leaves it mapped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
