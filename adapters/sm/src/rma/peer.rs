//! The shared regions of a peer, as far as they are mapped here.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use rustix::fs::{OFlags, SealFlags};
use towline_core::rail::native::Key;

use super::key;
use super::mapping::{LINK_TARGET, MAGIC, Mapping, NONCE_AT};
use crate::atomics::Ordering;
use crate::host::Process;
use crate::segment::layout::PAGE;

/// Type of a file system in memory with ordinary pages (`TMPFS_MAGIC`).
const TMPFS: u64 = 0x0102_1994;

/// The regions of one peer that are mapped here.
#[derive(Debug, Default)]
pub struct PeerRegions {
    mapped: Vec<MappedRegion>,
    /// The system does not permit this process to look at the peer.
    forbidden: bool,
    /// Number of the last region that could not be mapped; cleared by [`retry`](Self::retry).
    refused: Option<u64>,
}

/// A mapped region of a peer.
#[derive(Debug)]
pub struct MappedRegion {
    mapping: Mapping,
    nonce: u64,
    writable: bool,
}

impl MappedRegion {
    /// Address of `len` bytes from `offset` on. `None` where they are not all within the region, or are to be changed and the
    /// region is read-only.
    pub fn bytes(&self, offset: u64, len: u64, writes: bool) -> Option<*mut u8> {
        self.mapping.bytes(offset, len).filter(|_| self.writable || !writes)
    }
}

impl PeerRegions {
    /// The region that a key names, mapped if it is not yet. `None` where it does not exist any more, or cannot be mapped.
    pub fn find(&mut self, key: &Key, owner: &Process, me: &Process) -> Option<&MappedRegion> {
        let (descriptor, nonce) = key::decode(key)?;
        let at = match self.mapped.iter().position(|mapped| mapped.nonce == nonce) {
            Some(at) => at,
            None => {
                self.unmap_withdrawn();
                self.map(descriptor, nonce, owner, me)?;
                self.mapped.len() - 1
            }
        };
        self.mapped.get(at).filter(|mapped| mapped.mapping.is_shared())
    }

    fn map(&mut self, descriptor: u32, nonce: u64, owner: &Process, me: &Process) -> Option<()> {
        if self.forbidden || self.refused == Some(nonce) || owner.pid_namespace != me.pid_namespace {
            return None;
        }
        let found = open_path(owner.pid, descriptor);
        self.forbidden = found.as_ref().is_err_and(|why| why.kind() == io::ErrorKind::PermissionDenied);
        match found.and_then(|found| map_region(&found, nonce)) {
            Ok(mapped) => self.mapped.push(mapped),
            Err(why) => {
                self.refused = Some(nonce);
                log::info!(
                    "a window of process {} is not mapped, so operations on it travel in frames: {why}",
                    owner.pid
                );
                return None;
            }
        }
        Some(())
    }

    /// Drops the mappings of regions that their owner has withdrawn.
    fn unmap_withdrawn(&mut self) {
        self.mapped.retain(|mapped| mapped.mapping.is_shared());
    }

    /// Drops the mappings of withdrawn regions, and lets the last refused one be tried again.
    pub fn retry(&mut self) {
        self.unmap_withdrawn();
        self.refused = None;
    }
}

/// Opens a file of a process as a path alone (`O_PATH`). Opening a file in any other way can have effects: it may block, and
/// closing it may release locks on it.
fn open_path(process: u32, descriptor: u32) -> io::Result<File> {
    let path = format!("/proc/{process}/fd/{descriptor}");
    OpenOptions::new().read(true).custom_flags(OFlags::PATH.bits() as i32).open(path)
}

/// Maps a file that was opened as a path, if it is the region `nonce`.
fn map_region(found: &File, nonce: u64) -> io::Result<MappedRegion> {
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    if std::fs::read_link(&path)?.as_os_str() != LINK_TARGET {
        return Err(io::Error::other("the file is not a window"));
    }
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let (seals, about) = (rustix::fs::fcntl_get_seals(&file)?, file.metadata()?);
    let ours = about.is_file() && about.uid() == rustix::process::geteuid().as_raw();
    // Other file systems in memory have huge pages, of which none may be left when one is touched.
    let ours = ours && u64::try_from(rustix::fs::fstatfs(&file)?.f_type) == Ok(TMPFS);
    let len = usize::try_from(about.len()).ok().filter(|len| *len > PAGE);
    let (true, true, Some(len)) = (ours, seals.contains(SealFlags::SHRINK), len) else {
        return Err(io::Error::other("the file is not a window"));
    };
    let writable = !seals.intersects(SealFlags::FUTURE_WRITE | SealFlags::WRITE);
    let mapping = Mapping::new(&file, len, writable)?;
    let read = |at| mapping.word(at).load(Ordering::Acquire);
    if read(0) != MAGIC || read(NONCE_AT) != nonce {
        return Err(io::Error::other("the file is another window"));
    }
    Ok(MappedRegion { mapping, nonce, writable })
}
