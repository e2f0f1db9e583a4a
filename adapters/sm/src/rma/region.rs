//! Memory of this rank that peers may map.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::Resource;
use towline_core::rail::native::{Key, NativeError};
use towline_core::rma::Access;

use super::key;
use super::mapping::{FILE_NAME, MAGIC, Mapping, NONCE_AT, SHARED, STATE_AT};
use crate::atomics::Ordering;
use crate::segment::layout::PAGE;

/// Memory that peers may map: made by [`Rail::share`](crate::Rail::share), zero at first. It exists until all owners of a
/// reference have dropped it: the caller of `share`, and the rail while the region is registered. It may be used from any thread.
#[derive(Debug)]
pub struct SharedRegion {
    mapping: Mapping,
    nonce: u64,
    file: File,
}

impl SharedRegion {
    /// Makes a region of `len` bytes.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        // The kernel allocates a page when it is first touched, as with other memory. Only where the system does not overcommit
        // memory could this fail, and the access would end in a bus error.
        if std::fs::read("/proc/sys/vm/overcommit_memory")?.starts_with(b"2") {
            return Err(io::Error::other(
                "memory is not shared where the system does not overcommit memory: set vm.overcommit_memory to 0 or 1",
            ));
        }
        let whole = len.checked_add(PAGE).filter(|_| len != 0).ok_or(io::ErrorKind::InvalidInput)?;
        // The kernel ends a process with a signal if it makes a file longer than the limit of file sizes.
        if rustix::process::getrlimit(Resource::Fsize).current.is_some_and(|most| most < whole as u64) {
            return Err(io::Error::other(
                "the region is longer than files of this process may be: raise the limit of file sizes (ulimit -f)",
            ));
        }
        let file = rustix::fs::memfd_create(FILE_NAME, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, whole as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let file = File::from(file);
        let (mapping, nonce) = (Mapping::new(&file, whole, true)?, crate::host::nonce());
        mapping.word(NONCE_AT).store(nonce, Ordering::Relaxed);
        mapping.word(0).store(MAGIC, Ordering::Release);
        Ok(Self { mapping, nonce, file })
    }

    /// Address of its first byte, at the beginning of a page.
    pub fn base(&self) -> *mut u8 {
        self.mapping.data()
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.mapping.data_len()
    }

    /// Always `false`: there is no region of 0 bytes.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Its number, drawn at random.
    pub(super) fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Gives peers these rights and no more, enforced by the kernel.
    ///
    /// # Errors
    /// [`NativeError::NotAvailable`] where the kernel cannot enforce them, and for a region that was registered before.
    pub(super) fn grant(&self, access: Access) -> Result<(), NativeError> {
        let remote = access & (Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let seals = if remote == Access::REMOTE_READ {
            SealFlags::FUTURE_WRITE | SealFlags::SEAL
        } else if access.contains(Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) {
            SealFlags::SEAL
        } else {
            return Err(NativeError::NotAvailable);
        };
        // This fails where the kernel does not know `FUTURE_WRITE`, and for a region that was registered before.
        rustix::fs::fcntl_add_seals(&self.file, seals).map_err(|_| NativeError::NotAvailable)?;
        self.mapping.word(STATE_AT).store(SHARED, Ordering::Release);
        Ok(())
    }

    /// The key by which peers find it.
    pub(super) fn key(&self) -> Key {
        key::encode(self.file.as_raw_fd().cast_unsigned(), self.nonce)
    }

    /// Tells peers to drop their mappings.
    pub(super) fn withdraw(&self) {
        self.mapping.word(STATE_AT).store(0, Ordering::Release);
    }
}

impl Drop for SharedRegion {
    fn drop(&mut self) {
        self.withdraw();
    }
}
