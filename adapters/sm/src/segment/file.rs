//! A segment: a file in memory, mapped.
//!
//! The first page of a segment holds words (see [`layout`](super::layout)), read and written as atomics only. The memory is
//! reserved when the file is made, so that a full file system is an error then and not a bus error later. Files are readable by
//! their owner alone.
//!
//! A process of the same user that shortens a file can crash the processes that map it, as it can with a signal. Seals would
//! prevent that, but only a `memfd` can be sealed, and it has no name. A peer would have to open it through its maker's `/proc`
//! entry, which containers with separate process id namespaces do not see, and the maker would hold a descriptor for each ring
//! until then.

use core::ffi::c_void;
use core::ptr::NonNull;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::FallocateFlags;
use rustix::mm::{MapFlags, ProtFlags};

use super::room::{Room, file_limit};
use crate::atomics::{AtomicU32, AtomicU64};
use crate::error::{OpenError, system_error};
use crate::host::keep_from_children;

/// A mapping of a whole segment; unmapped when dropped.
#[derive(Debug)]
pub struct Segment {
    base: NonNull<u8>,
    len: usize,
    /// The file's number in its file system.
    inode: u64,
}

// SAFETY: the mapping belongs to the process, not to a thread; its words are atomics.
unsafe impl Send for Segment {}

impl Segment {
    /// Makes a segment of `len` bytes, all zero, its memory reserved.
    pub fn create(path: &Path, len: usize) -> Result<Self, OpenError> {
        if let Some(limit) = file_limit().filter(|limit| *limit < len as u64) {
            return Err(OpenError::FileLimit { path: path.to_owned(), bytes: len as u64, limit });
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
            .open(path)
            .map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => OpenError::Taken(path.to_owned()),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => no_room(path, len),
                _ => system_error("create", path, error),
            })?;
        let made = Self::reserve(&file, path, len).and_then(|()| Self::map(&file, path, len));
        if made.is_err() {
            let _ = std::fs::remove_file(path);
        }
        made
    }

    fn reserve(file: &File, path: &Path, len: usize) -> Result<(), OpenError> {
        loop {
            return match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len as u64) {
                Ok(()) => Ok(()),
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => Err(no_room(path, len)),
                Err(error) => Err(system_error("reserve memory for", path, error.into())),
            };
        }
    }

    /// Maps a segment that another process made, if it can be trusted: a regular file of our own user, at least
    /// `at_least` bytes long.
    pub fn open(path: &Path, at_least: usize) -> Result<Self, OpenError> {
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags.bits() as i32)
            .open(path)
            .map_err(|error| system_error("open", path, error))?;
        let about = file.metadata().map_err(|error| system_error("look at", path, error))?;
        let ours = about.is_file() && about.uid() == rustix::process::geteuid().as_raw();
        // An access to memory that is not reserved would be a bus error.
        if !ours || about.len() < at_least as u64 || about.blocks() * 512 < about.len() {
            return Err(OpenError::Malformed(path.to_owned()));
        }
        Self::map(&file, path, about.len() as usize)
    }

    fn map(file: &File, path: &Path, len: usize) -> Result<Self, OpenError> {
        let inode = file.metadata().map_err(|error| system_error("look at", path, error))?.ino();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours.
        let base = unsafe { rustix::mm::mmap(core::ptr::null_mut(), len, protection, flags, file, 0) }
            .map_err(|error| system_error("map", path, error.into()))?;
        keep_from_children(base, len);
        let base = NonNull::new(base.cast()).ok_or_else(|| OpenError::Malformed(path.to_owned()))?;
        Ok(Self { base, len, inode })
    }

    /// Removes the file's name, unless another file has that name now.
    pub fn remove_name(&self, path: &Path) {
        if std::fs::symlink_metadata(path).is_ok_and(|about| about.ino() == self.inode) {
            let _ = std::fs::remove_file(path);
        }
    }

    /// Bytes mapped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Address of the byte at `offset`; it must not be accessed if it is beyond the end.
    pub fn at(&self, offset: usize) -> *mut u8 {
        self.base.as_ptr().wrapping_add(offset)
    }

    /// The 64-bit word number `index`.
    ///
    /// # Panics
    /// Where the segment is shorter: callers ask for fixed words of the first page, which `create` and `open` checked.
    pub fn word(&self, index: usize) -> &AtomicU64 {
        &self.words(index, 1)[0]
    }

    /// The low half of word number `index`, as a word of its own.
    ///
    /// # Panics
    /// As [`Self::word`].
    pub fn half(&self, index: usize) -> &AtomicU32 {
        let word = core::ptr::from_ref(self.word(index)).cast::<u32>().cast_mut();
        // SAFETY: inside the mapping, aligned, lives as long as `self`, and is accessed by 32-bit atomics only.
        unsafe { AtomicU32::from_ptr(word) }
    }

    /// `count` words from number `index` on.
    ///
    /// # Panics
    /// As [`Self::word`].
    pub fn words(&self, index: usize, count: usize) -> &[AtomicU64] {
        assert!(index.saturating_add(count).saturating_mul(8) <= self.len, "a segment is as long as its header says");
        // SAFETY: inside the mapping as just checked, page-aligned base, and lives as long as `self`. Other processes write
        // there, which atomics allow.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr().cast::<AtomicU64>().add(index), count) }
    }
}

/// The error for a segment of `len` bytes that does not fit into its file system.
fn no_room(path: &Path, len: usize) -> OpenError {
    let Room { bytes: free_bytes, files: free_files } = path.parent().map(Room::of).unwrap_or_default();
    OpenError::NoRoom { path: path.to_owned(), bytes: len as u64, free_bytes, free_files }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and all pointers into it are kept beside it and dropped with it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}
