//! The queue pair of a connection: reliable, and with access to the peer's memory.

use std::io;
use std::sync::Arc;

use rdma_mummy_sys as ffi;

use super::calls::Sge;
use super::completion::CompletionQueue;
use super::memory::MemoryRegion;
use super::queue_pair::{QueuePair, empty_request};
use super::receive_queue::SharedReceiveQueue;
use super::route::{ConnectionAttributes, FetchOp, RemoteAddress};
use crate::sizes::TRANSMISSIONS;

/// The queue pair of a reliable connection.
#[derive(Debug)]
pub(crate) struct ReliableQueuePair {
    pair: QueuePair,
    inline: u32,
}

impl ReliableQueuePair {
    /// A queue pair that can have `sends` work requests in flight. It is not connected yet. If the device does not grant `inline`
    /// bytes, no bytes travel inline.
    pub fn new(
        region: &Arc<MemoryRegion>,
        completions: &Arc<CompletionQueue>,
        shared: &Arc<SharedReceiveQueue>,
        port: u8,
        sends: u32,
        inline: u32,
        atomics: bool,
    ) -> io::Result<Self> {
        let kind = ffi::ibv_qp_type::IBV_QPT_RC;
        let make = |inline| QueuePair::new(region, completions, Some(shared), kind, (sends, 0, inline));
        let (pair, inline) = make(inline).or_else(|_| make(0))?;
        let mask = ffi::ibv_qp_attr_mask::IBV_QP_PKEY_INDEX
            | ffi::ibv_qp_attr_mask::IBV_QP_PORT
            | ffi::ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS;
        let mut access = ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_READ;
        if atomics {
            access |= ffi::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC;
        }
        let init = |to: &mut ffi::ibv_qp_attr| {
            to.port_num = port;
            // Peers can access only memory that is registered for them. Markers, which write nothing, need the right, too.
            to.qp_access_flags = access.0;
        };
        pair.modify(init, ffi::ibv_qp_state::IBV_QPS_INIT, mask)?;
        Ok(Self { pair, inline })
    }

    pub const fn number(&self) -> u32 {
        self.pair.number()
    }

    /// How many bytes a work request can carry inline.
    pub const fn inline(&self) -> u32 {
        self.inline
    }

    /// Connects it, in both directions: its messages arrive once the peer has connected, too.
    pub fn connect(&self, path: &ConnectionAttributes) -> io::Result<()> {
        use ffi::ibv_qp_attr_mask as mask;
        let receives = mask::IBV_QP_AV
            | mask::IBV_QP_PATH_MTU
            | mask::IBV_QP_DEST_QPN
            | mask::IBV_QP_RQ_PSN
            | mask::IBV_QP_MAX_DEST_RD_ATOMIC
            | mask::IBV_QP_MIN_RNR_TIMER;
        let to_receive = |to: &mut ffi::ibv_qp_attr| {
            to.ah_attr = path.route.attributes();
            to.path_mtu = path.mtu as u32;
            to.dest_qp_num = path.queue_pair;
            to.rq_psn = path.first_packet_in;
            to.max_dest_rd_atomic = path.reads_in;
            to.min_rnr_timer = 7; // 0.12 ms until a peer that found no receive buffer tries again
        };
        self.pair.modify(to_receive, ffi::ibv_qp_state::IBV_QPS_RTR, receives)?;
        let sends = mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT
            | mask::IBV_QP_RNR_RETRY
            | mask::IBV_QP_SQ_PSN
            | mask::IBV_QP_MAX_QP_RD_ATOMIC;
        let to_send = |to: &mut ffi::ibv_qp_attr| {
            to.timeout = path.ack_timeout;
            to.retry_cnt = (TRANSMISSIONS - 1) as u8;
            to.rnr_retry = 7; // forever: the peer's process may compute for long
            to.sq_psn = path.first_packet_out;
            to.max_rd_atomic = path.reads_out;
        };
        self.pair.modify(to_send, ffi::ibv_qp_state::IBV_QPS_RTS, sends)
    }

    /// Moves it to its error state: no data moves any more, and all its work requests are reported as failed.
    pub fn set_error(&self) -> io::Result<()> {
        self.pair.set_error()
    }

    /// Destroys it. Returns whether that succeeded. If not, the device may still read the send buffers, which stay mapped.
    pub fn destroy(mut self) -> bool {
        self.pair.destroy()
    }

    /// Sends `len` bytes of the region from offset `at`, with immediate data. The caller leaves the bytes unchanged until the
    /// device reports the completion of this work request or of a later one.
    #[inline]
    pub fn send(&self, id: u64, immediate: u32, at: usize, len: u32, signaled: bool) -> io::Result<()> {
        let Some(element) = self.pair.region().element(at, len) else { return Err(io::ErrorKind::InvalidInput.into()) };
        let mut request = empty_request();
        request.wr_id = id;
        request.opcode = ffi::ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
        request.imm_data_invalidated_rkey_union.imm_data = immediate.to_be();
        if signaled {
            request.send_flags |= ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
        if len <= self.inline {
            request.send_flags |= ffi::ibv_send_flags::IBV_SEND_INLINE.0;
        }
        // SAFETY: this is memory of the region, which the queue pair holds. No code writes to it before the completion: see
        // `SendResources`.
        unsafe { self.pair.post(&mut request, (len > 0).then_some(element)) }
    }

    /// Writes to a peer's memory, by two work requests. The second one reads a byte of the written memory, and is executed
    /// only after the write. The device reports its completion; then the written bytes are visible to every reader.
    /// `read_back` is the offset in the region to which that byte is read.
    ///
    /// # Safety
    /// The source is readable and unchanged until the device reports the completion of the second work request or of a later one,
    /// or the queue pair is destroyed. It is registered for as long, unless it travels [inline](Self::inline).
    pub unsafe fn put(
        &self,
        [first, last]: [u64; 2],
        from: Sge,
        to: RemoteAddress,
        read_back: usize,
    ) -> io::Result<()> {
        let Some(mut target) = self.pair.region().element(read_back, 1) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut read = empty_request();
        read.wr_id = last;
        read.opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_READ;
        read.send_flags = ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
        read.wr.rdma = ffi::rdma_t { remote_addr: to.address, rkey: to.key };
        (read.sg_list, read.num_sge) = (&raw mut target, 1);
        let mut write = empty_request();
        write.wr_id = first;
        write.opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        write.wr.rdma = ffi::rdma_t { remote_addr: to.address, rkey: to.key };
        write.next = &raw mut read;
        if from.length <= self.inline {
            write.send_flags = ffi::ibv_send_flags::IBV_SEND_INLINE.0;
        }
        // SAFETY: the caller guarantees it for the put; the byte that is read goes to the region, where no code uses it.
        unsafe { self.pair.post(&mut write, Some(from)) }
    }

    /// Reads from a peer's memory; the device reports the completion.
    ///
    /// # Safety
    /// The target is registered and writable, and no other code uses it, until the device reports the completion of this work
    /// request or of a later one, or the queue pair is destroyed.
    pub unsafe fn get(&self, id: u64, to: Sge, from: RemoteAddress) -> io::Result<()> {
        let mut request = empty_request();
        request.wr_id = id;
        request.opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_READ;
        request.send_flags = ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
        request.wr.rdma = ffi::rdma_t { remote_addr: from.address, rkey: from.key };
        // SAFETY: passed on from the caller.
        unsafe { self.pair.post(&mut request, Some(to)) }
    }

    /// Executes an atomic operation on a word of a peer's memory. The device reports the completion; then the word's old
    /// value is at offset `old` in the region.
    pub fn fetch_atomic(&self, id: u64, old: usize, what: FetchOp, at: RemoteAddress) -> io::Result<()> {
        let Some(old) = self.pair.region().element(old, 8) else { return Err(io::ErrorKind::InvalidInput.into()) };
        let mut request = empty_request();
        request.wr_id = id;
        request.send_flags = ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
        let (opcode, compare_add, swap) = match what {
            FetchOp::Add(operand) => (ffi::ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, operand, 0),
            FetchOp::CompareSwap(old, new) => (ffi::ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP, old, new),
        };
        request.opcode = opcode;
        request.wr.atomic = ffi::atomic_t { remote_addr: at.address, compare_add, swap, rkey: at.key };
        // SAFETY: this is memory of the region, which the queue pair holds. No code uses it before the completion: see
        // `SendResources`.
        unsafe { self.pair.post(&mut request, Some(old)) }
    }

    /// Posts a marker: a write of no bytes, which the peer's device acknowledges nevertheless. The device reports the completion.
    pub fn post_marker(&self, id: u64) -> io::Result<()> {
        let mut request = empty_request();
        request.wr_id = id;
        request.opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        request.send_flags = ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
        // SAFETY: it accesses no memory.
        unsafe { self.pair.post(&mut request, None) }
    }
}
