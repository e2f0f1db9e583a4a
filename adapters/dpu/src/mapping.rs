//! The window's file, as this process maps it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::NonNull;

use rustix::fs::{FlockOperation, flock};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use towline_window::header::HEADER;
use towline_window::memory::Memory;

/// A mapped window. When this is dropped, it is unmapped, and its lock ends.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    /// The file, which this process may have locked. If the process is killed, the kernel ends the lock when the children that it has
    /// forked have ended, too.
    file: File,
    /// The process that has opened it.
    process: u32,
}

// SAFETY: the mapping is an address and a size, and belongs to the process.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps a file from an offset on, a multiple of the size of a page.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn open(path: &Path, offset: u64) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let bytes = file.metadata()?.len().checked_sub(offset).filter(|bytes| *bytes != 0);
        let bytes = bytes.ok_or_else(|| io::Error::other("it ends before the window"))?;
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: this maps new memory.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, rights, MapFlags::SHARED, file.as_fd(), offset)? };
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("it was mapped to address 0"))?;
        Ok(Self { base, bytes, file, process: std::process::id() })
    }

    /// Locks the file, so that no other host uses the device. Returns `false` if another one has locked it.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn lock(&self) -> io::Result<bool> {
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(why) => Err(why.into()),
        }
    }

    /// Ends the lock, and keeps the file for the next one.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn release(&self) -> io::Result<()> {
        Ok(flock(&self.file, FlockOperation::Unlock)?)
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

    /// Whether this process has opened it. A forked child has a copy.
    pub(crate) fn is_own(&self) -> bool {
        self.process == std::process::id()
    }

    /// The file.
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// The address of its first byte.
    #[inline]
    pub const fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Forked children have the same open file, so its lock would last as long as they do. A child must not end the lock of its parent.
        if self.is_own() {
            let _ = self.release();
        }
        // SAFETY: this memory was mapped by `open`, and its users are gone, as they have promised. A failure leaves it mapped.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
