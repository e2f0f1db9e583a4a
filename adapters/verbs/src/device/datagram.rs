//! Datagrams: the queue pair that sends and receives hellos, and the destinations of hellos.

use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rdma_mummy_sys as ffi;

use super::calls::checked;
use super::completion::CompletionQueue;
use super::memory::{MemoryRegion, ProtectionDomain};
use super::queue_pair::{QueuePair, empty_request};
use super::route::Route;

/// The destination of a datagram: a queue pair at a port.
#[derive(Debug)]
pub(crate) struct AddressHandle {
    handle: NonNull<ffi::ibv_ah>,
    domain: Arc<ProtectionDomain>,
    queue_pair: u32,
    /// The Q_Key of that queue pair.
    key: u32,
}

// SAFETY: as for `Device`.
unsafe impl Send for AddressHandle {}
// SAFETY: as for `Device`.
unsafe impl Sync for AddressHandle {}

impl AddressHandle {
    pub fn new(domain: &Arc<ProtectionDomain>, route: &Route, queue_pair: u32, key: u32) -> io::Result<Self> {
        let mut to = route.attributes();
        // SAFETY: a live domain; the attributes are read before this returns.
        let handle = unsafe { ffi::ibv_create_ah(domain.as_ptr(), &raw mut to) };
        let handle = NonNull::new(handle).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { handle, domain: Arc::clone(domain), queue_pair, key })
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: made once, and all work requests that were posted with it are completed, or their queue pair is destroyed: see
        // `HelloBuffers`.
        if unsafe { ffi::ibv_destroy_ah(self.handle.as_ptr()) } != 0 {
            std::mem::forget(Arc::clone(&self.domain));
        }
    }
}

/// The queue pair of hellos: it sends datagrams, which may get lost.
#[derive(Debug)]
pub(crate) struct DatagramQueuePair {
    pair: QueuePair,
    port: u8,
    /// Its Q_Key.
    key: u32,
}

impl DatagramQueuePair {
    pub fn new(
        region: &Arc<MemoryRegion>,
        completions: &Arc<CompletionQueue>,
        port: u8,
        (sends, receives): (u32, u32),
        key: u32,
    ) -> io::Result<Self> {
        let kind = ffi::ibv_qp_type::IBV_QPT_UD;
        let (pair, _) = QueuePair::new(region, completions, None, kind, (sends, receives, 0))?;
        let datagrams = Self { pair, port, key };
        datagrams.activate()?;
        Ok(datagrams)
    }

    /// Moves it from its initial state to the one in which it sends and receives.
    fn activate(&self) -> io::Result<()> {
        use ffi::ibv_qp_attr_mask as mask;
        let init = |to: &mut ffi::ibv_qp_attr| (to.port_num, to.qkey) = (self.port, self.key);
        let what = mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_QKEY;
        self.pair.modify(init, ffi::ibv_qp_state::IBV_QPS_INIT, what)?;
        self.pair.modify(|_| {}, ffi::ibv_qp_state::IBV_QPS_RTR, mask(0))?;
        self.pair.modify(|to| to.sq_psn = 0, ffi::ibv_qp_state::IBV_QPS_RTS, mask::IBV_QP_SQ_PSN)
    }

    /// Moves it to its error state: all posted work requests are reported as failed, and so are those that are posted from
    /// then on.
    pub fn set_error(&self) -> io::Result<()> {
        self.pair.set_error()
    }

    /// Resets it after an error; it keeps its number. The completion of all posted work requests was reported before.
    pub fn reset(&self) -> io::Result<()> {
        self.pair.modify(|_| {}, ffi::ibv_qp_state::IBV_QPS_RESET, ffi::ibv_qp_attr_mask(0))?;
        self.activate()
    }

    pub const fn number(&self) -> u32 {
        self.pair.number()
    }

    /// Sends `len` bytes of the region from offset `at`. The caller leaves them unchanged until the device reports the
    /// completion.
    pub fn send(&self, id: u64, to: &AddressHandle, at: usize, len: u32) -> io::Result<()> {
        let Some(element) = self.pair.region().element(at, len) else { return Err(io::ErrorKind::InvalidInput.into()) };
        let mut request = empty_request();
        request.wr_id = id;
        request.opcode = ffi::ibv_wr_opcode::IBV_WR_SEND;
        request.send_flags = ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
        request.wr.ud = ffi::ud_t { ah: to.handle.as_ptr(), remote_qpn: to.queue_pair, remote_qkey: to.key };
        // SAFETY: this is memory of the region, which the queue pair holds. No code writes to it before the completion: see
        // `HelloBuffers`.
        unsafe { self.pair.post(&mut request, Some(element)) }
    }

    /// Posts a receive buffer of `len` bytes at offset `at` in the region. The device writes the next datagram there, and reports
    /// it with `id`.
    pub fn post(&self, id: u64, at: usize, len: u32) -> io::Result<()> {
        let Some(mut element) = self.pair.region().element(at, len) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut request = ffi::ibv_recv_wr { wr_id: id, next: null_mut(), sg_list: &raw mut element, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: a live queue pair; the work request and its element are read before this returns, and name memory of the region
        // that the queue pair holds.
        checked(unsafe { ffi::ibv_post_recv(self.pair.as_ptr(), &raw mut request, &raw mut bad) })
    }
}
