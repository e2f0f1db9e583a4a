//! Queue pairs: one for each connection, and one for the hellos of all.

use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rdma_mummy_sys as ffi;

use super::{Completions, Domain, Element, Region, SharedReceives, checked};
use crate::config::TRIES;
use crate::port::{Gid, Kind, Mtu};

/// How packets get to a peer's port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    pub kind: Kind,
    pub gid: Gid,
    pub lid: u16,
    pub port: u8,
    pub gid_index: u8,
    pub traffic_class: u8,
}

impl Route {
    fn attributes(&self) -> ffi::ibv_ah_attr {
        // SAFETY: plain numbers and bytes, for which zero is a value.
        let mut to: ffi::ibv_ah_attr = unsafe { std::mem::zeroed() };
        to.port_num = self.port;
        to.dlid = self.lid;
        if self.kind == Kind::InfiniBand {
            to.sl = self.traffic_class; // within a subnet the LID is enough
            return to;
        }
        to.is_global = 1;
        to.grh.dgid = ffi::ibv_gid { raw: self.gid.0 };
        to.grh.sgid_index = self.gid_index;
        to.grh.hop_limit = 64;
        to.grh.traffic_class = self.traffic_class;
        to
    }
}

/// What a connection needs to know of the peer, and of the time that the peer's device has to answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub route: Route,
    pub mtu: Mtu,
    pub queue_pair: u32,
    /// Of the peer's packets.
    pub first_packet_in: u32,
    /// Of our own.
    pub first_packet_out: u32,
    pub ack_timeout: u8,
    /// Reads and atomics that may be under way.
    pub reads: u8,
    /// Those of the peer that are answered at a time.
    pub answers: u8,
}

/// Where something is to be done in a peer's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub address: u64,
    /// The peer's device's key.
    pub key: u32,
}

/// What is to be done to a word of 64 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fetch {
    Add(u64),
    /// What it is compared with, and what it becomes.
    CompareSwap(u64, u64),
}

/// A queue pair with all that it works on.
#[derive(Debug)]
struct QueuePair {
    queue: NonNull<ffi::ibv_qp>,
    is_there: bool,
    region: Arc<Region>,
    completions: Arc<Completions>,
    shared: Option<Arc<SharedReceives>>,
}

// SAFETY: as for `Opened`.
unsafe impl Send for QueuePair {}
// SAFETY: as for `Opened`.
unsafe impl Sync for QueuePair {}

impl QueuePair {
    fn new(
        region: &Arc<Region>,
        completions: &Arc<Completions>,
        shared: Option<&Arc<SharedReceives>>,
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
        // More than was asked for may be had; no more is used than was asked for.
        Ok((Self { queue, is_there: true, region, completions, shared }, wanted.cap.max_inline_data.min(inline)))
    }

    const fn number(&self) -> u32 {
        // SAFETY: a live queue pair, whose number does not change.
        unsafe { self.queue.as_ref().qp_num }
    }

    fn modify(
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

    /// Posts work, in the memory of one element or of none.
    ///
    /// # Safety
    /// The element's memory stays there, registered, and nobody else's as far as the device writes to it, until the device tells
    /// that it is through with the work or with later one, or the queue pair is destroyed. The same holds for
    /// what follows in `work.next`, which has its element already.
    #[inline]
    unsafe fn post(&self, work: &mut ffi::ibv_send_wr, element: Option<Element>) -> io::Result<()> {
        let mut element = element;
        if let Some(element) = &mut element {
            (work.sg_list, work.num_sge) = (element, 1);
        }
        let mut bad = null_mut();
        // SAFETY: a live queue pair; the work and its element are read before this returns. The caller vouches for the memory.
        checked(unsafe { ffi::ibv_post_send(self.queue.as_ptr(), work, &raw mut bad) })
    }

    /// Puts it in its error state: nothing moves any more, and all work is told to have failed.
    fn break_down(&self) -> io::Result<()> {
        self.modify(|_| {}, ffi::ibv_qp_state::IBV_QPS_ERR, ffi::ibv_qp_attr_mask(0))
    }

    /// Whether the device touches nothing by it from here on. Nobody uses it afterwards but to drop it: all who call this own it.
    fn destroy(&mut self) -> bool {
        // SAFETY: made once, and destroyed once.
        self.is_there = self.is_there && unsafe { ffi::ibv_destroy_qp(self.queue.as_ptr()) } != 0;
        !self.is_there
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if !self.destroy() {
            log::warn!("verbs: a queue pair stays: {}", io::Error::last_os_error());
            std::mem::forget((Arc::clone(&self.region), Arc::clone(&self.completions), self.shared.clone()));
        }
    }
}

/// Work with nothing in it.
fn no_work() -> ffi::ibv_send_wr {
    // SAFETY: numbers and pointers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

/// A reliable connection.
#[derive(Debug)]
pub(crate) struct Reliable {
    pair: QueuePair,
    inline: u32,
}

impl Reliable {
    /// A queue pair that can have `sends` under way; not connected.
    pub fn new(
        region: &Arc<Region>,
        completions: &Arc<Completions>,
        shared: &Arc<SharedReceives>,
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
            // Only what is registered for peers is within their reach; and markers, that write nothing, have to be allowed, too.
            to.qp_access_flags = access.0;
        };
        pair.modify(init, ffi::ibv_qp_state::IBV_QPS_INIT, mask)?;
        Ok(Self { pair, inline })
    }

    pub const fn number(&self) -> u32 {
        self.pair.number()
    }

    /// Bytes that may go with the work itself.
    pub const fn inline(&self) -> u32 {
        self.inline
    }

    /// Connects it, for both ways: what it sends arrives once the peer has connected, too.
    pub fn connect(&self, path: &Path) -> io::Result<()> {
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
            to.max_dest_rd_atomic = path.answers;
            to.min_rnr_timer = 7; // 0.12 ms, until a peer tries again that found no buffer
        };
        self.pair.modify(to_receive, ffi::ibv_qp_state::IBV_QPS_RTR, receives)?;
        let sends = mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT
            | mask::IBV_QP_RNR_RETRY
            | mask::IBV_QP_SQ_PSN
            | mask::IBV_QP_MAX_QP_RD_ATOMIC;
        let to_send = |to: &mut ffi::ibv_qp_attr| {
            to.timeout = path.ack_timeout;
            to.retry_cnt = (TRIES - 1) as u8;
            to.rnr_retry = 7; // for ever: the peer's process takes its time
            to.sq_psn = path.first_packet_out;
            to.max_rd_atomic = path.reads;
        };
        self.pair.modify(to_send, ffi::ibv_qp_state::IBV_QPS_RTS, sends)
    }

    /// Puts it in its error state: nothing moves any more, and all work is told to have failed.
    pub fn break_down(&self) -> io::Result<()> {
        self.pair.break_down()
    }

    /// Whether the device has destroyed it. Else it may go on reading what was to be sent, which stays mapped.
    pub fn destroy(mut self) -> bool {
        self.pair.destroy()
    }

    /// Sends these bytes of the region, and a word. They stay as they are until the device tells of this work or of later one.
    #[inline]
    pub fn send(&self, id: u64, word: u32, at: usize, len: u32, signaled: bool) -> io::Result<()> {
        let Some(element) = self.pair.region.element(at, len) else { return Err(io::ErrorKind::InvalidInput.into()) };
        let mut work = no_work();
        work.wr_id = id;
        work.opcode = ffi::ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
        work.imm_data_invalidated_rkey_union.imm_data = word.to_be();
        if signaled {
            work.send_flags |= ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
        }
        if len <= self.inline {
            work.send_flags |= ffi::ibv_send_flags::IBV_SEND_INLINE.0;
        }
        // SAFETY: of the region, which the queue pair holds, and where nobody writes before the device tells: see `Slots`.
        unsafe { self.pair.post(&mut work, (len > 0).then_some(element)) }
    }

    /// Writes to a peer's memory. The device tells of the second piece of work, when what was written is there for whoever looks: it
    /// reads some of it, which it does not before.
    ///
    /// # Safety
    /// What is written is readable and as it is until the device tells of that work or of later one, or the queue pair is destroyed.
    /// Unless it goes [inline](Self::inline) it is registered for as long.
    pub unsafe fn put(&self, [lead, last]: [u64; 2], from: Element, to: Place, little: usize) -> io::Result<()> {
        let Some(mut little) = self.pair.region.element(little, 1) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut read = no_work();
        read.wr_id = last;
        read.opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_READ;
        read.send_flags = ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
        read.wr.rdma = ffi::rdma_t { remote_addr: to.address, rkey: to.key };
        (read.sg_list, read.num_sge) = (&raw mut little, 1);
        let mut write = no_work();
        write.wr_id = lead;
        write.opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        write.wr.rdma = ffi::rdma_t { remote_addr: to.address, rkey: to.key };
        write.next = &raw mut read;
        if from.length <= self.inline {
            write.send_flags = ffi::ibv_send_flags::IBV_SEND_INLINE.0;
        }
        // SAFETY: passed on from the caller; the byte that is read comes to the region, where nobody looks at it.
        unsafe { self.pair.post(&mut write, Some(from)) }
    }

    /// Reads from a peer's memory; the device tells.
    ///
    /// # Safety
    /// The bytes that it reads to are registered, writable and nobody else's until the device tells of this work or of later one, or
    /// the queue pair is destroyed.
    pub unsafe fn get(&self, id: u64, to: Element, from: Place) -> io::Result<()> {
        let mut work = no_work();
        work.wr_id = id;
        work.opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_READ;
        work.send_flags = ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
        work.wr.rdma = ffi::rdma_t { remote_addr: from.address, rkey: from.key };
        // SAFETY: passed on from the caller.
        unsafe { self.pair.post(&mut work, Some(to)) }
    }

    /// Changes a word of a peer's memory; the device tells, when what it was is at `old` in the region.
    pub fn read_exposed(&self, id: u64, old: usize, what: Fetch, at: Place) -> io::Result<()> {
        let Some(old) = self.pair.region.element(old, 8) else { return Err(io::ErrorKind::InvalidInput.into()) };
        let mut work = no_work();
        work.wr_id = id;
        work.send_flags = ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
        let (opcode, compare_add, swap) = match what {
            Fetch::Add(operand) => (ffi::ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD, operand, 0),
            Fetch::CompareSwap(old, new) => (ffi::ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP, old, new),
        };
        work.opcode = opcode;
        work.wr.atomic = ffi::atomic_t { remote_addr: at.address, compare_add, swap, rkey: at.key };
        // SAFETY: of the region, which the queue pair holds, and where nobody looks before the device tells: see `Slots`.
        unsafe { self.pair.post(&mut work, Some(old)) }
    }

    /// Writes nothing to the peer, whose device answers all the same; the device tells.
    pub fn mark(&self, id: u64) -> io::Result<()> {
        let mut work = no_work();
        work.wr_id = id;
        work.opcode = ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        work.send_flags = ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
        // SAFETY: it touches no memory.
        unsafe { self.pair.post(&mut work, None) }
    }
}

/// Where a datagram goes.
#[derive(Debug)]
pub(crate) struct Destination {
    handle: NonNull<ffi::ibv_ah>,
    domain: Arc<Domain>,
    queue_pair: u32,
    key: u32,
}

// SAFETY: as for `Opened`.
unsafe impl Send for Destination {}
// SAFETY: as for `Opened`.
unsafe impl Sync for Destination {}

impl Destination {
    pub fn new(domain: &Arc<Domain>, route: &Route, queue_pair: u32, key: u32) -> io::Result<Self> {
        let mut to = route.attributes();
        // SAFETY: a live domain; the attributes are read before this returns.
        let handle = unsafe { ffi::ibv_create_ah(domain.as_ptr(), &raw mut to) };
        let handle = NonNull::new(handle).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { handle, domain: Arc::clone(domain), queue_pair, key })
    }
}

impl Drop for Destination {
    fn drop(&mut self) {
        // SAFETY: made once, and all work that was posted with it is done, or its queue pair is gone: see `Outbox`.
        if unsafe { ffi::ibv_destroy_ah(self.handle.as_ptr()) } != 0 {
            std::mem::forget(Arc::clone(&self.domain));
        }
    }
}

/// The queue pair of hellos: datagrams, which may get lost.
#[derive(Debug)]
pub(crate) struct Datagrams {
    pair: QueuePair,
    port: u8,
    key: u32,
}

impl Datagrams {
    pub fn new(
        region: &Arc<Region>,
        completions: &Arc<Completions>,
        port: u8,
        (sends, receives): (u32, u32),
        key: u32,
    ) -> io::Result<Self> {
        let kind = ffi::ibv_qp_type::IBV_QPT_UD;
        let (pair, _) = QueuePair::new(region, completions, None, kind, (sends, receives, 0))?;
        let datagrams = Self { pair, port, key };
        datagrams.begin()?;
        Ok(datagrams)
    }

    /// From its first state to where it sends and receives.
    fn begin(&self) -> io::Result<()> {
        use ffi::ibv_qp_attr_mask as mask;
        let init = |to: &mut ffi::ibv_qp_attr| (to.port_num, to.qkey) = (self.port, self.key);
        let what = mask::IBV_QP_PKEY_INDEX | mask::IBV_QP_PORT | mask::IBV_QP_QKEY;
        self.pair.modify(init, ffi::ibv_qp_state::IBV_QPS_INIT, what)?;
        self.pair.modify(|_| {}, ffi::ibv_qp_state::IBV_QPS_RTR, mask(0))?;
        self.pair.modify(|to| to.sq_psn = 0, ffi::ibv_qp_state::IBV_QPS_RTS, mask::IBV_QP_SQ_PSN)
    }

    /// Puts it in its error state: all that was posted is told to have failed, and so is what is posted from then on.
    pub fn break_down(&self) -> io::Result<()> {
        self.pair.break_down()
    }

    /// Begins anew, under the same number. All that was posted has been told of.
    pub fn mend(&self) -> io::Result<()> {
        self.pair.modify(|_| {}, ffi::ibv_qp_state::IBV_QPS_RESET, ffi::ibv_qp_attr_mask(0))?;
        self.begin()
    }

    pub const fn number(&self) -> u32 {
        self.pair.number()
    }

    /// Sends these bytes of the region, which stay as they are until the device tells.
    pub fn send(&self, id: u64, to: &Destination, at: usize, len: u32) -> io::Result<()> {
        let Some(element) = self.pair.region.element(at, len) else { return Err(io::ErrorKind::InvalidInput.into()) };
        let mut work = no_work();
        work.wr_id = id;
        work.opcode = ffi::ibv_wr_opcode::IBV_WR_SEND;
        work.send_flags = ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
        work.wr.ud = ffi::ud_t { ah: to.handle.as_ptr(), remote_qpn: to.queue_pair, remote_qkey: to.key };
        // SAFETY: of the region, which the queue pair holds, and where nobody writes before the device tells: see `Outbox`.
        unsafe { self.pair.post(&mut work, Some(element)) }
    }

    /// Gives these bytes of the region to the device: it writes there what comes next, and tells so with `id`.
    pub fn post(&self, id: u64, at: usize, len: u32) -> io::Result<()> {
        let Some(mut element) = self.pair.region.element(at, len) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut work = ffi::ibv_recv_wr { wr_id: id, next: null_mut(), sg_list: &raw mut element, num_sge: 1 };
        let mut bad = null_mut();
        // SAFETY: a live queue pair; the work and its element are read before this returns, and name memory of the region that
        // the queue pair holds.
        checked(unsafe { ffi::ibv_post_recv(self.pair.queue.as_ptr(), &raw mut work, &raw mut bad) })
    }
}
