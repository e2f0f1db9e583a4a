//! The shared receive queue.

use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rdma_mummy_sys as ffi;

use super::calls::{Sge, checked};
use super::memory::MemoryRegion;

/// Most buffers that are posted by one call.
pub(crate) const MAX_POSTS: usize = 16;

/// A receive queue whose buffers take the frames of all connections.
#[derive(Debug)]
pub(crate) struct SharedReceiveQueue {
    queue: NonNull<ffi::ibv_srq>,
    region: Arc<MemoryRegion>,
}

// SAFETY: as for `Device`.
unsafe impl Send for SharedReceiveQueue {}
// SAFETY: as for `Device`.
unsafe impl Sync for SharedReceiveQueue {}

impl SharedReceiveQueue {
    pub fn new(region: &Arc<MemoryRegion>, count: u32) -> io::Result<Arc<Self>> {
        // SAFETY: plain numbers and a pointer, for which zero is a value.
        let mut wanted: ffi::ibv_srq_init_attr = unsafe { std::mem::zeroed() };
        wanted.attr.max_wr = count;
        wanted.attr.max_sge = 1;
        // SAFETY: a live domain.
        let queue = unsafe { ffi::ibv_create_srq(region.domain().as_ptr(), &raw mut wanted) };
        let queue = NonNull::new(queue).ok_or_else(io::Error::last_os_error)?;
        Ok(Arc::new(Self { queue, region: Arc::clone(region) }))
    }

    pub(super) const fn as_ptr(&self) -> *mut ffi::ibv_srq {
        self.queue.as_ptr()
    }

    /// Posts buffers of the region, each of `len` bytes, by one call; each is given by the id of its work request and its offset.
    /// The device writes the next messages there, and reports them with these ids. At most [`MAX_POSTS`] buffers.
    pub fn post(&self, buffers: impl Iterator<Item = (u64, usize)>, len: u32) -> io::Result<()> {
        let empty = Sge { addr: 0, length: 0, lkey: 0 };
        let mut elements = [empty; MAX_POSTS];
        let mut requests =
            [const { ffi::ibv_recv_wr { wr_id: 0, next: null_mut(), sg_list: null_mut(), num_sge: 1 } }; MAX_POSTS];
        let mut count = 0;
        for (id, at) in buffers {
            let entry = requests.get_mut(count).zip(elements.get_mut(count)).zip(self.region.element(at, len));
            let Some(((request, place), element)) = entry else { return Err(io::ErrorKind::InvalidInput.into()) };
            (request.wr_id, *place) = (id, element);
            count += 1;
        }
        // The list is linked from its end, since each work request has the address of the next one.
        let mut next = null_mut();
        for (request, element) in requests[..count].iter_mut().zip(&mut elements[..count]).rev() {
            (request.next, request.sg_list) = (next, element);
            next = request;
        }
        if next.is_null() {
            return Ok(());
        }
        let mut bad = null_mut();
        // SAFETY: a live queue; the work requests and their elements stay where they are and are read before this returns,
        // and name memory of the region that the queue holds.
        checked(unsafe { ffi::ibv_post_srq_recv(self.as_ptr(), next, &raw mut bad) })
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        // SAFETY: made once, and no queue pair uses it any more: that would hold it.
        if unsafe { ffi::ibv_destroy_srq(self.as_ptr()) } != 0 {
            std::mem::forget(Arc::clone(&self.region));
        }
    }
}
