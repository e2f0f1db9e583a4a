//! Memory that the device may touch.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as ffi;
use towline_core::rma::Access;

use super::{Element, Opened};

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
    pub fn element(&self, at: usize, len: u32) -> Option<Element> {
        let start = self.pointer(at, len as usize)?;
        Some(Element { addr: start.as_ptr() as u64, length: len, lkey: self.key })
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

/// Memory of the user's that is registered, for as long as this is there.
#[derive(Debug)]
pub(crate) struct Registered {
    registered: NonNull<ffi::ibv_mr>,
    base: u64,
    len: u64,
    domain: Arc<Domain>,
}

// SAFETY: as for `Opened`.
unsafe impl Send for Registered {}
// SAFETY: as for `Opened`.
unsafe impl Sync for Registered {}

impl Registered {
    /// Registers it: for the device's own use here, and with these rights for peers.
    ///
    /// # Safety
    /// Until this is dropped the memory is there, and all who access it know that peers do so too, as far as the rights go.
    pub unsafe fn new(domain: &Arc<Domain>, base: *mut u8, len: usize, access: Access) -> io::Result<Self> {
        use ffi::ibv_access_flags as flags;
        let changes = access.intersects(Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        let rights = [
            (changes, flags::IBV_ACCESS_LOCAL_WRITE), // where anybody may write, it has to be so here
            (access.contains(Access::REMOTE_READ), flags::IBV_ACCESS_REMOTE_READ),
            (access.contains(Access::REMOTE_WRITE), flags::IBV_ACCESS_REMOTE_WRITE),
            (access.contains(Access::REMOTE_ATOMIC), flags::IBV_ACCESS_REMOTE_ATOMIC),
        ];
        let rights = rights.iter().filter(|(asked, _)| *asked).fold(0, |all, (_, flag)| all | flag.0);
        // SAFETY: a live domain; the caller vouches for the memory.
        let registered = unsafe { ffi::ibv_reg_mr(domain.as_ptr(), base.cast(), len, rights as libc::c_int) };
        let registered = NonNull::new(registered).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { registered, base: base.addr() as u64, len: len as u64, domain: Arc::clone(domain) })
    }

    /// The device's key for peers.
    pub const fn remote_key(&self) -> u32 {
        // SAFETY: it is registered, and its keys do not change.
        unsafe { self.registered.as_ref().rkey }
    }

    /// These bytes, in the device's words; `None` where they are not all in here.
    pub fn element(&self, base: *const u8, len: u32) -> Option<Element> {
        let at = (base.addr() as u64).checked_sub(self.base)?;
        // SAFETY: as above.
        let lkey = unsafe { self.registered.as_ref().lkey };
        let inside = at <= self.len && u64::from(len) <= self.len - at;
        inside.then_some(Element { addr: base.addr() as u64, length: len, lkey })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: registered once.
        if unsafe { ffi::ibv_dereg_mr(self.registered.as_ptr()) } != 0 {
            log::error!("verbs: memory stays within reach of peers: {}", io::Error::last_os_error());
            std::mem::forget(Arc::clone(&self.domain));
        }
    }
}
