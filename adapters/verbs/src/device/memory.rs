//! Memory that the device may access.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as ffi;
use towline_core::rma::Access;

use super::calls::Sge;
use super::context::Device;

/// The protection domain of a rail: its objects may access each other.
#[derive(Debug)]
pub(crate) struct ProtectionDomain {
    domain: NonNull<ffi::ibv_pd>,
    device: Arc<Device>,
}

// SAFETY: as for `Device`.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as for `Device`.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    pub fn new(device: Arc<Device>) -> io::Result<Arc<Self>> {
        // SAFETY: an open device.
        let domain =
            NonNull::new(unsafe { ffi::ibv_alloc_pd(device.as_ptr()) }).ok_or_else(io::Error::last_os_error)?;
        Ok(Arc::new(Self { domain, device }))
    }

    pub const fn as_ptr(&self) -> *mut ffi::ibv_pd {
        self.domain.as_ptr()
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: allocated once, and no object belongs to it any more: that would hold it.
        if unsafe { ffi::ibv_dealloc_pd(self.domain.as_ptr()) } != 0 {
            std::mem::forget(Arc::clone(&self.device)); // it is still in use
        }
    }
}

/// The rail's own memory: mapped, and registered with the device. No slice of it is ever made, since the device may write to it.
#[derive(Debug)]
pub(crate) struct MemoryRegion {
    registered: NonNull<ffi::ibv_mr>,
    key: u32,
    base: NonNull<u8>,
    len: usize,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: memory of the process, and as for `Device`. Each read and write of it states why no other code accesses it at that
// time.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    pub fn new(domain: &Arc<ProtectionDomain>, len: usize) -> io::Result<Arc<Self>> {
        let len = len.max(1);
        let (access, share) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, access, share, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A forked child must not share these pages. If it did, the process that writes to a page first would get a new page,
        // and the device would still use the old one.
        // SAFETY: our own mapping; nothing changes for the parent.
        let advised = unsafe { libc::madvise(base, len, libc::MADV_DONTFORK) };
        let registered = (advised == 0).then(|| {
            let access = ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as libc::c_int;
            // SAFETY: a live domain, and memory that stays mapped until it is deregistered.
            unsafe { ffi::ibv_reg_mr(domain.as_ptr(), base, len, access) }
        });
        let (Some(registered), Some(base)) = (registered.and_then(NonNull::new), NonNull::new(base.cast())) else {
            let why = io::Error::last_os_error();
            // SAFETY: our own mapping, whose address was not given to anybody.
            unsafe { libc::munmap(base, len) };
            return Err(why);
        };
        // SAFETY: registered just now.
        let key = unsafe { registered.as_ref().lkey };
        Ok(Arc::new(Self { registered, key, base, len, domain: Arc::clone(domain) }))
    }

    pub const fn domain(&self) -> &Arc<ProtectionDomain> {
        &self.domain
    }

    /// `len` bytes at offset `at`, as an element of a work request; `None` where they are not all within the region.
    #[inline]
    pub fn element(&self, at: usize, len: u32) -> Option<Sge> {
        let start = self.pointer(at, len as usize)?;
        Some(Sge { addr: start.as_ptr() as u64, length: len, lkey: self.key })
    }

    /// Address of `len` bytes at offset `at`; `None` where they are not all within the region.
    #[inline]
    pub fn pointer(&self, at: usize, len: usize) -> Option<NonNull<u8>> {
        let inside = at <= self.len && len <= self.len - at;
        // SAFETY: within the mapping, or one byte behind its end.
        inside.then(|| unsafe { self.base.add(at) })
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: registered once, and no queue can make the device access it any more: that would hold it.
        if unsafe { ffi::ibv_dereg_mr(self.registered.as_ptr()) } != 0 {
            log::warn!("verbs: memory cannot be deregistered: {}", io::Error::last_os_error());
            std::mem::forget(Arc::clone(&self.domain));
            return; // it stays mapped, too
        }
        // SAFETY: our own mapping, which is not registered with the device any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// The user's memory, registered with the device until this is dropped.
#[derive(Debug)]
pub(crate) struct UserRegion {
    registered: NonNull<ffi::ibv_mr>,
    base: u64,
    len: u64,
    domain: Arc<ProtectionDomain>,
}

// SAFETY: as for `Device`.
unsafe impl Send for UserRegion {}
// SAFETY: as for `Device`.
unsafe impl Sync for UserRegion {}

impl UserRegion {
    /// Registers memory for our own device, and with these rights for peers.
    ///
    /// # Safety
    /// Until this is dropped the memory exists, and all code that accesses it allows for accesses of peers, as far as the rights
    /// go.
    pub unsafe fn new(domain: &Arc<ProtectionDomain>, base: *mut u8, len: usize, access: Access) -> io::Result<Self> {
        use ffi::ibv_access_flags as flags;
        let changes = access.intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let rights = [
            (changes, flags::IBV_ACCESS_LOCAL_WRITE), // remote writes are allowed only together with local ones
            (access.contains(Access::REMOTE_READ), flags::IBV_ACCESS_REMOTE_READ),
            (access.contains(Access::REMOTE_WRITE), flags::IBV_ACCESS_REMOTE_WRITE),
            (access.contains(Access::REMOTE_ATOMIC), flags::IBV_ACCESS_REMOTE_ATOMIC),
        ];
        let rights = rights.iter().filter(|(asked, _)| *asked).fold(0, |all, (_, flag)| all | flag.0);
        // SAFETY: a live domain; the caller guarantees that the memory is valid.
        let registered = unsafe { ffi::ibv_reg_mr(domain.as_ptr(), base.cast(), len, rights as libc::c_int) };
        let registered = NonNull::new(registered).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { registered, base: base.addr() as u64, len: len as u64, domain: Arc::clone(domain) })
    }

    /// The key that peers use.
    pub const fn remote_key(&self) -> u32 {
        // SAFETY: it is registered, and its keys do not change.
        unsafe { self.registered.as_ref().rkey }
    }

    /// `len` bytes at address `base`, as an element of a work request; `None` where they are not all within the memory.
    pub fn element(&self, base: *const u8, len: u32) -> Option<Sge> {
        let at = (base.addr() as u64).checked_sub(self.base)?;
        // SAFETY: as above.
        let lkey = unsafe { self.registered.as_ref().lkey };
        let inside = at <= self.len && u64::from(len) <= self.len - at;
        inside.then_some(Sge { addr: base.addr() as u64, length: len, lkey })
    }
}

impl Drop for UserRegion {
    fn drop(&mut self) {
        // SAFETY: registered once.
        if unsafe { ffi::ibv_dereg_mr(self.registered.as_ptr()) } != 0 {
            log::error!(
                "verbs: memory cannot be deregistered, and peers can still access it: {}",
                io::Error::last_os_error()
            );
            std::mem::forget(Arc::clone(&self.domain));
        }
    }
}
