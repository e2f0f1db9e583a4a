//! A queue pair of any kind.

use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rdma_mummy_sys as ffi;

use super::calls::{Sge, checked};
use super::completion::CompletionQueue;
use super::memory::MemoryRegion;
use super::receive_queue::SharedReceiveQueue;

/// A queue pair, with the objects that it depends on.
#[derive(Debug)]
pub(super) struct QueuePair {
    queue: NonNull<ffi::ibv_qp>,
    exists: bool,
    region: Arc<MemoryRegion>,
    completions: Arc<CompletionQueue>,
    shared: Option<Arc<SharedReceiveQueue>>,
}

// SAFETY: as for `Device`.
unsafe impl Send for QueuePair {}
// SAFETY: as for `Device`.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    /// A queue pair, and how many bytes its work requests can carry inline.
    pub fn new(
        region: &Arc<MemoryRegion>,
        completions: &Arc<CompletionQueue>,
        shared: Option<&Arc<SharedReceiveQueue>>,
        kind: ffi::ibv_qp_type::Type,
        (sends, receives, inline): (u32, u32, u32),
    ) -> io::Result<(Self, u32)> {
        // SAFETY: plain numbers and pointers, for which zero is a value.
        let mut wanted: ffi::ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        wanted.send_cq = completions.as_ptr();
        wanted.recv_cq = completions.as_ptr();
        wanted.srq = shared.map_or(null_mut(), |shared| shared.as_ptr());
        wanted.cap.max_send_wr = sends;
        wanted.cap.max_recv_wr = receives;
        wanted.cap.max_send_sge = 1;
        wanted.cap.max_recv_sge = 1;
        wanted.cap.max_inline_data = inline;
        wanted.qp_type = kind;
        // SAFETY: a live domain, and live queues, which the queue pair will hold.
        let queue = unsafe { ffi::ibv_create_qp(region.domain().as_ptr(), &raw mut wanted) };
        let queue = NonNull::new(queue).ok_or_else(io::Error::last_os_error)?;
        let (region, completions, shared) = (Arc::clone(region), Arc::clone(completions), shared.cloned());
        // The library may grant more inline bytes than were asked for; only those that were asked for are used.
        Ok((Self { queue, exists: true, region, completions, shared }, wanted.cap.max_inline_data.min(inline)))
    }

    pub const fn as_ptr(&self) -> *mut ffi::ibv_qp {
        self.queue.as_ptr()
    }

    pub const fn number(&self) -> u32 {
        // SAFETY: a live queue pair, whose number does not change.
        unsafe { self.queue.as_ref().qp_num }
    }

    /// Changes its state, and the attributes that `what` names.
    pub fn modify(
        &self,
        change: impl FnOnce(&mut ffi::ibv_qp_attr),
        state: ffi::ibv_qp_state::Type,
        what: ffi::ibv_qp_attr_mask,
    ) -> io::Result<()> {
        // SAFETY: plain numbers and bytes, for which zero is a value.
        let mut to: ffi::ibv_qp_attr = unsafe { std::mem::zeroed() };
        to.qp_state = state;
        change(&mut to);
        let mask = (what | ffi::ibv_qp_attr_mask::IBV_QP_STATE).0;
        // SAFETY: a live queue pair; the attributes are read before this returns.
        checked(unsafe { ffi::ibv_modify_qp(self.queue.as_ptr(), &raw mut to, mask as libc::c_int) })
    }

    /// The region that its work requests name.
    pub const fn region(&self) -> &Arc<MemoryRegion> {
        &self.region
    }

    /// Posts a work request, in the memory of one element or of none.
    ///
    /// # Safety
    /// The element's memory exists and is registered, and no other code uses it as far as the device writes to it, until the
    /// device reports the completion of this work request or of a later one, or the queue pair is destroyed. The same holds
    /// for the work requests that follow in `request.next`, which have their elements already.
    #[inline]
    pub unsafe fn post(&self, request: &mut ffi::ibv_send_wr, element: Option<Sge>) -> io::Result<()> {
        let mut element = element;
        if let Some(element) = &mut element {
            (request.sg_list, request.num_sge) = (element, 1);
        }
        let mut bad = null_mut();
        // SAFETY: a live queue pair; the work request and its element are read before this returns. The caller vouches for the
        // memory.
        checked(unsafe { ffi::ibv_post_send(self.queue.as_ptr(), request, &raw mut bad) })
    }

    /// Moves it to its error state: no data moves any more, and all its work requests are reported as failed.
    pub fn set_error(&self) -> io::Result<()> {
        self.modify(|_| {}, ffi::ibv_qp_state::IBV_QPS_ERR, ffi::ibv_qp_attr_mask(0))
    }

    /// Destroys it. Returns whether that succeeded; then the device accesses no memory through it from here on. All callers
    /// own the queue pair, and only drop it afterwards.
    pub fn destroy(&mut self) -> bool {
        // SAFETY: made once, and destroyed once.
        self.exists = self.exists && unsafe { ffi::ibv_destroy_qp(self.queue.as_ptr()) } != 0;
        !self.exists
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if !self.destroy() {
            log::warn!("verbs: a queue pair cannot be destroyed: {}", io::Error::last_os_error());
            std::mem::forget((Arc::clone(&self.region), Arc::clone(&self.completions), self.shared.clone()));
        }
    }
}

/// An empty work request.
pub(super) fn empty_request() -> ffi::ibv_send_wr {
    // SAFETY: numbers and pointers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}
