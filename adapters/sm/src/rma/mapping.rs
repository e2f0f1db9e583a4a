//! A mapping of a shared region, and the words of its first page.

use core::ptr::NonNull;
use std::io;
use std::os::fd::AsFd;

use rustix::mm::{MapFlags, ProtFlags};

use crate::atomics::{AtomicU64, Ordering};
use crate::host::keep_from_children;
use crate::segment::layout::PAGE;

/// Value of the first word of a region: "towwin" and the version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"towwin\0\x01");
/// Word that holds the region's number.
pub const NONCE_AT: usize = 1;
/// Word that is [`SHARED`] as long as peers may access the region.
pub const STATE_AT: usize = 2;
/// Value of the state word while peers may access the region.
pub const SHARED: u64 = 1;
/// Name under which the system lists the file of a region.
pub const FILE_NAME: &str = "towline-window";
/// Target of the link in `/proc` that shows a region's file.
pub const LINK_TARGET: &str = "/memfd:towline-window (deleted)";

/// A mapping of a region, with its first page; unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; the words of its first page are atomics, and of the rest
// only addresses are given out.
unsafe impl Send for Mapping {}
// SAFETY: the same.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `file`, whose length is `len` bytes; it must be longer than a page.
    pub fn new(file: impl AsFd, len: usize, writable: bool) -> io::Result<Self> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let base = unsafe { rustix::mm::mmap(core::ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0) }?;
        keep_from_children(base, len);
        Ok(Self { base: NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?, len })
    }

    /// The first byte of the data, which begins at the second page.
    pub fn data(&self) -> *mut u8 {
        self.base.as_ptr().wrapping_add(PAGE)
    }

    /// Bytes of data.
    pub fn data_len(&self) -> usize {
        self.len - PAGE
    }

    /// A word of the first page.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < PAGE / 8, "a word of the first page");
        // SAFETY: within the mapping, which is longer than a page, aligned, and alive as long as `self`; others write
        // there too, which atomics allow. Only owners store, whose mapping is writable.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().cast::<u64>().add(index)) }
    }

    /// Whether peers may still access the region.
    pub fn is_shared(&self) -> bool {
        self.word(STATE_AT).load(Ordering::Acquire) == SHARED
    }

    /// Address of `len` bytes of the data from `offset` on; `None` where they are not all within it.
    pub fn bytes(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let end = offset.checked_add(len)?;
        (end <= (self.len - PAGE) as u64).then(|| self.data().wrapping_add(offset as usize))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and only the owner of the struct that holds it uses addresses in it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
