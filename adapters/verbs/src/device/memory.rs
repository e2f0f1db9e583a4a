//! Memory that the device may touch.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as ffi;

use super::Opened;

/// What objects of one rail belong to, so that they may work on each other.
#[derive(Debug)]
pub(crate) struct Domain {
    domain: NonNull<ffi::ibv_pd>,
    device: Arc<Opened>,
}

// SAFETY: as for `Opened`.
unsafe impl Send for Domain {}
// SAFETY: as for `Opened`.
unsafe impl Sync for Domain {}

impl Domain {
    pub fn new(device: Arc<Opened>) -> io::Result<Arc<Self>> {
        // SAFETY: an open device.
        let domain =
            NonNull::new(unsafe { ffi::ibv_alloc_pd(device.as_ptr()) }).ok_or_else(io::Error::last_os_error)?;
        Ok(Arc::new(Self { domain, device }))
    }

    pub const fn as_ptr(&self) -> *mut ffi::ibv_pd {
        self.domain.as_ptr()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: allocated once, and nothing belongs to it any more: that would hold it.
        if unsafe { ffi::ibv_dealloc_pd(self.domain.as_ptr()) } != 0 {
            std::mem::forget(Arc::clone(&self.device)); // it is still in use
        }
    }
}

/// Memory that is mapped, and registered with the device. It is never seen as a slice: the device may write to it.
#[derive(Debug)]
pub(crate) struct Region {
    registered: NonNull<ffi::ibv_mr>,
    key: u32,
    base: NonNull<u8>,
    len: usize,
    domain: Arc<Domain>,
}

// SAFETY: memory of the process, and as for `Opened`. Whoever reads or writes it says why nobody else does at that time.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    pub fn new(domain: &Arc<Domain>, len: usize) -> io::Result<Arc<Self>> {
        let len = len.max(1);
        let (access, share) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, access, share, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A child that is forked must not have these pages: whoever writes to one first would get another one, and the device
        // would go on with the old one.
        // SAFETY: our own mapping; nothing of the parent's changes.
        let kept = unsafe { libc::madvise(base, len, libc::MADV_DONTFORK) };
        let registered = (kept == 0).then(|| {
            let access = ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as libc::c_int;
            // SAFETY: a live domain, and memory that stays mapped until it is deregistered.
            unsafe { ffi::ibv_reg_mr(domain.as_ptr(), base, len, access) }
        });
        let (Some(registered), Some(base)) = (registered.and_then(NonNull::new), NonNull::new(base.cast())) else {
            let why = io::Error::last_os_error();
            // SAFETY: our own mapping, which nobody has seen.
            unsafe { libc::munmap(base, len) };
            return Err(why);
        };
        // SAFETY: registered just now.
        let key = unsafe { registered.as_ref().lkey };
        Ok(Arc::new(Self { registered, key, base, len, domain: Arc::clone(domain) }))
    }

    pub const fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// These bytes, in the device's words; `None` where they are not all in here.
    #[inline]
    pub fn element(&self, at: usize, len: u32) -> Option<ffi::ibv_sge> {
        let start = self.pointer(at, len as usize)?;
        Some(ffi::ibv_sge { addr: start.as_ptr() as u64, length: len, lkey: self.key })
    }

    /// Where these bytes are; `None` where they are not all in here.
    #[inline]
    pub fn pointer(&self, at: usize, len: usize) -> Option<NonNull<u8>> {
        let inside = at <= self.len && len <= self.len - at;
        // SAFETY: within the mapping, or one behind its end.
        inside.then(|| unsafe { self.base.add(at) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: registered once, and no queue can have the device touch it any more: that would hold it.
        if unsafe { ffi::ibv_dereg_mr(self.registered.as_ptr()) } != 0 {
            log::warn!("verbs: memory stays registered: {}", io::Error::last_os_error());
            std::mem::forget(Arc::clone(&self.domain));
            return; // and mapped
        }
        // SAFETY: our own mapping, of which the device knows nothing any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
