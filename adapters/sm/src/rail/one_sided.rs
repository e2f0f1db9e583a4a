//! One-sided operations on memory that is mapped. See [`rma`](crate::rma).

use std::io;
use std::sync::Arc;

use towline_core::rail::Endpoint;
use towline_core::rail::apply_atomic;
use towline_core::rail::native::{Native, NativeError, Work};

use super::peer::PeerStatus;
use super::state::Rail;
use crate::atomics::{Ordering, fence};
use crate::rma::SharedRegion;

impl Rail {
    /// Makes memory of `len` bytes that peers will map once it is registered. It takes a file descriptor.
    ///
    /// # Errors
    /// Those of the system. Also an error where the system does not overcommit memory, where `len` is 0 or beyond the limit of
    /// file sizes, and where sharing is [switched off](crate::Config::share_windows).
    ///
    /// ```
    /// use towline_core::rail::DeviceMemory as _;
    /// use towline_core::rma::Access;
    ///
    /// let mut rail = towline_sm::Rail::open(towline_sm::Config::new(u64::from(std::process::id()), 0, 1))?;
    /// let memory = rail.share(64)?;
    /// // SAFETY: the memory exists until it is deregistered, and nobody has a reference to it.
    /// let (region, key) = unsafe { rail.register(memory.base(), 64, Access::ANY) }?;
    /// rail.deregister(region);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn share(&mut self, len: usize) -> io::Result<Arc<SharedRegion>> {
        if !self.config.share_windows {
            return Err(io::Error::other("sharing of windows is switched off (`share_windows`, TOWLINE_SM_WINDOWS)"));
        }
        let region = Arc::new(SharedRegion::new(len)?);
        self.regions.add(&region);
        Ok(region)
    }

    /// Executes an operation on a peer's memory.
    ///
    /// # Safety
    /// As [`perform`](towline_core::rail::DeviceMemory::perform).
    pub(super) unsafe fn perform_on(&mut self, on: Endpoint, native: &Native) -> Result<Option<u64>, NativeError> {
        let Self { peers, identity, .. } = self;
        let peer = peers.get_mut(on.0 as usize).filter(|peer| peer.status == PeerStatus::Connected);
        let peer = peer.ok_or(NativeError::Unreachable)?;
        let memory =
            peer.regions.find(&native.key, &peer.process, &identity.process).ok_or(NativeError::NotAvailable)?;
        let (len, writes) = match native.work {
            Work::Put(local) => (local.len, true),
            Work::Get(local) => (local.len, false),
            Work::Atomic(_, flags) => (flags.word_bytes(), true),
        };
        let at = memory.bytes(native.offset, len, writes).ok_or(NativeError::NotAvailable)?;
        match native.work {
            Work::Put(local) => {
                // SAFETY: within the mapping, which cannot become shorter, and is writable; the caller vouches for
                // local memory, which lies elsewhere. Writes of other processes to it at the same time make the bytes
                // arbitrary, and no more.
                unsafe { at.copy_from_nonoverlapping(local.base, len as usize) };
                fence(Ordering::SeqCst); // the operation is complete: every later read of the memory finds the bytes
            }
            Work::Get(local) => {
                // SAFETY: the same.
                unsafe { at.copy_to_nonoverlapping(local.base, len as usize) };
                fence(Ordering::Acquire); // later reads see nothing older
            }
            Work::Atomic(atomic, flags) => {
                if at.addr() as u64 & (len - 1) != 0 || !atomic.takes(flags) {
                    return Err(NativeError::NotAvailable);
                }
                // SAFETY: within the mapping, aligned, and peers use atomics there; a put or get of another process at the same
                // time yields any mixture of bytes, and no more.
                let old = unsafe { apply_atomic(at, atomic, flags) };
                if !cfg!(target_arch = "x86_64") {
                    fence(Ordering::SeqCst); // atomics of x86-64 include this fence
                }
                return Ok(Some(old));
            }
        }
        Ok(Some(0))
    }

    /// Drops mappings of peers' regions that their owners have withdrawn.
    pub(super) fn unmap_withdrawn_regions(&mut self) {
        for peer in &mut self.peers {
            peer.regions.retry();
        }
    }
}
