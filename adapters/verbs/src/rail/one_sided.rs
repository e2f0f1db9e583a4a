//! One-sided operations: the device itself reads, writes and changes memory of peers.
//!
//! The bytes of a short operation are copied through a buffer of the rail. For longer ones the device accesses the user's own
//! memory if that is registered. Operations of more than [`max_send_size_bytes`](crate::Config::max_send_size_bytes) need
//! registered memory.
//!
//! The peer's device ends the connection when an operation lacks the right or is out of bounds. So an operation that is not
//! allowed according to its key is not posted. An operation with a stale or forged key is posted, and can end the connection.
//! A device may also give the key of deregistered memory to the memory that is registered next. Then a stale key accesses
//! that memory, which is registered for peers, too.

use std::ptr::NonNull;

use towline_core::rail::atomics::{Atomic, AtomicFlags, AtomicOp};
use towline_core::rail::native::{Key, Local, Native, NativeError, Region, Work};
use towline_core::rail::{Cookie, Endpoint, Lane, SendError};
use towline_core::rma::Access;

use super::peer::ConnState;
use super::queues::Queues;
use super::state::Rail;
use super::work_id::WorkId;
use crate::bookkeeping::operations::{OpKind, Operation, Sink};
use crate::bookkeeping::resource::{Buffer, Resource};
use crate::bookkeeping::send_resources::SendResources;
use crate::device::{FetchOp, RemoteAddress, Sge, UserRegion};
use crate::sizes::MAX_OPS_PER_PEER;
use crate::wire::remote_key::{MAX_LEN, RemoteMemory};

/// Longest time that the device may take to release the user's memory when a connection ends. After that the queue pair is
/// destroyed at once, and a receive buffer may be lost with it.
const RECLAIM_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(20);

impl Rail {
    /// Registers memory of the user.
    ///
    /// # Safety
    /// As [`register`](towline_core::rail::DeviceMemory::register).
    pub(super) unsafe fn register_memory(
        &mut self,
        base: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<(Region, Key), NativeError> {
        if !self.attributes.one_sided.any() {
            return Err(NativeError::NotAvailable);
        }
        // Memory of an accelerator is not supported: the device would have to know the accelerator.
        if access.contains(Access::ACCELERATOR) || len as u64 > MAX_LEN {
            return Err(NativeError::NotAvailable);
        }
        let mut access = access & Access::ANY;
        if self.local.port.atomics.is_empty() {
            access -= Access::REMOTE_ATOMIC;
        }
        // SAFETY: passed on from the caller.
        let registered = unsafe { UserRegion::new(self.queues.region.domain(), base, len, access) }.map_err(|why| {
            log::info!("verbs link {}: {len} bytes cannot be registered: {why}", self.config.link);
            NativeError::NotAvailable
        })?;
        let remote = RemoteMemory {
            address: base.addr() as u64,
            len: len as u64,
            key: registered.remote_key(),
            access,
            link: self.config.link,
        };
        Ok((self.user_memory.insert(registered), remote.encode()))
    }

    /// Posts an operation on a peer's memory.
    ///
    /// # Safety
    /// As [`perform`](towline_core::rail::DeviceMemory::perform).
    pub(super) unsafe fn perform_on(
        &mut self,
        on: Endpoint,
        native: &Native,
        cookie: Cookie,
    ) -> Result<Option<u64>, NativeError> {
        if !self.attributes.one_sided.any() {
            return Err(NativeError::NotAvailable);
        }
        if let Work::Put(Local { len: 0, .. }) | Work::Get(Local { len: 0, .. }) = native.work {
            return Ok(Some(0)); // a device may take a length of zero for a very large one
        }
        let remote = RemoteMemory::decode(&native.key).filter(|remote| remote.link == self.config.link);
        let remote = remote.ok_or(NativeError::NotAvailable)?;
        let address = remote.address_of(&native.work, native.offset).ok_or(NativeError::NotAvailable)?;
        let at = RemoteAddress { address, key: remote.key };
        let peer = self.peers.get(on.0).ok_or(NativeError::Unreachable)?;
        let (ConnState::Established, Some(connection)) = (peer.state, &peer.connection) else {
            return Err(match self.not_established(on.0) {
                SendError::Unreachable => NativeError::Unreachable,
                _ => NativeError::Busy,
            });
        };
        if peer.card.reads == 0 {
            return Err(NativeError::NotAvailable);
        }
        let (queue, queue_pair) = (&connection.send_queue, &connection.queue_pair);
        // The queue has room for one more work request than this: the second one of a put may take it.
        if queue.len() >= self.config.send_queue_frames as usize || queue.count_operations() >= MAX_OPS_PER_PEER {
            return Err(NativeError::Busy);
        }
        let op = self.send.resources.operations.next().ok_or(NativeError::Busy)?;
        let (number, endpoint) = (queue.next(), on.0);
        let id = |ahead| WorkId::Send { endpoint, number: number.wrapping_add(ahead) }.word();
        let (kind, has_two, posted) = match native.work {
            Work::Put(local) => {
                let (kind, from) = self.put_source(&local, queue_pair.inline())?;
                let read_back = self.queues.layout.read_back.at(0).unwrap_or(usize::MAX);
                // SAFETY: the source is the user's memory, for which the caller vouches, or a buffer that is taken below. The
                // user's memory goes inline, or is registered and unchanged until the result is reported, or until
                // `reclaim_user_memory` has ensured that the device does not read it any more.
                (kind, true, unsafe { queue_pair.put([id(0), id(1)], from, at, read_back) })
            }
            Work::Get(local) => {
                let (kind, to) = self.get_target(&local)?;
                // SAFETY: as above.
                (kind, false, unsafe { queue_pair.get(id(0), to, at) })
            }
            Work::Atomic(atomic, flags) => {
                let fetch = match atomic {
                    _ if flags != AtomicFlags::empty() => return Err(NativeError::NotAvailable),
                    Atomic::Op(AtomicOp::Add, operand) => FetchOp::Add(operand),
                    Atomic::CompareSwap(compare, value) => FetchOp::CompareSwap(compare, value),
                    Atomic::Op(..) => return Err(NativeError::NotAvailable),
                };
                let buffer = self.send.resources.next(Lane::Eager).ok_or(NativeError::Busy)?;
                let old = self.queues.layout.buffer(buffer).unwrap_or(usize::MAX);
                (OpKind::Atomic(buffer), false, queue_pair.fetch_atomic(id(0), old, fetch, at))
            }
        };
        let resources = &mut self.send.resources;
        if let OpKind::Put(Some(buffer)) | OpKind::Get(buffer, _) | OpKind::Atomic(buffer) = kind
            && !resources.take(buffer)
        {
            log::error!("verbs: a free buffer was taken twice"); // does not happen: nothing else takes buffers in between
        }
        resources.operations.begin(Operation { endpoint, cookie, kind });
        let Some(connection) = self.peers.connection_mut(endpoint) else {
            return Err(NativeError::Unreachable); // does not happen
        };
        if has_two {
            connection.send_queue.push(Resource::OperationPart(op), false);
        }
        connection.send_queue.push(Resource::Operation(op), true);
        self.counters.one_sided += 1;
        self.counters.direct += u64::from(matches!(kind, OpKind::Direct));
        if let Err(why) = posted {
            // The first of two work requests may be in flight. The connection ends, and with it all its work requests.
            log::debug!("verbs: the device refuses an operation: {why}");
            self.lists.add_failed(endpoint);
        }
        Ok(None)
    }

    /// The memory that the device reads for a put.
    fn put_source(&self, local: &Local, inline: u32) -> Result<(OpKind, Sge), NativeError> {
        let len = u32::try_from(local.len).map_err(|_| NativeError::NotAvailable)?;
        if len <= inline {
            let element = Sge { addr: local.base.addr() as u64, length: len, lkey: 0 };
            return Ok((OpKind::Put(None), element)); // the bytes are read when the work request is posted
        }
        if let Some(element) = self.user_element(local, len) {
            return Ok((OpKind::Direct, element));
        }
        let (buffer, at) = self.buffer_for(len)?;
        let region = &self.queues.region;
        let (room, element) = (region.pointer(at, len as usize), region.element(at, len));
        let (Some(room), Some(element)) = (room, element) else { return Err(NativeError::NotAvailable) };
        // SAFETY: within the region, a buffer that the device has completed; the user's memory is readable, as promised to
        // `perform`.
        unsafe { room.as_ptr().copy_from_nonoverlapping(local.base, len as usize) };
        Ok((OpKind::Put(Some(buffer)), element))
    }

    /// The memory that the device writes for a get.
    fn get_target(&self, local: &Local) -> Result<(OpKind, Sge), NativeError> {
        let len = u32::try_from(local.len).map_err(|_| NativeError::NotAvailable)?;
        if let Some(element) = self.user_element(local, len) {
            return Ok((OpKind::Direct, element));
        }
        let (buffer, at) = self.buffer_for(len)?;
        let (Some(element), Some(base)) = (self.queues.region.element(at, len), NonNull::new(local.base)) else {
            return Err(NativeError::NotAvailable);
        };
        // SAFETY: as promised to `perform`; when a peer is lost or deleted, its operations are removed first.
        let sink = unsafe { Sink::new(base, len as usize) };
        Ok((OpKind::Get(buffer, sink), element))
    }

    /// The user's own memory, where it is registered, and longer than an eager buffer. Copying less is cheaper.
    fn user_element(&self, local: &Local, len: u32) -> Option<Sge> {
        let long = len > self.config.short_bytes();
        self.user_memory.get(local.region.filter(|_| long)?)?.element(local.base, len)
    }

    /// A free buffer for `len` bytes, and its offset in the region.
    fn buffer_for(&self, len: u32) -> Result<(Buffer, usize), NativeError> {
        if len > self.config.max_send_size_bytes {
            return Err(NativeError::NotAvailable);
        }
        let lane = if len <= self.config.short_bytes() { Lane::Eager } else { Lane::Bulk };
        let buffer = self.send.resources.next(lane).ok_or(NativeError::Busy)?;
        Ok((buffer, self.queues.layout.buffer(buffer).ok_or(NativeError::Busy)?))
    }

    /// Ensures that the device does not access the user's memory any more for a connection that has ended.
    pub(super) fn reclaim_user_memory(&mut self, queue_pair: u32) {
        let began = std::time::Instant::now();
        while self
            .closing
            .send_queue(queue_pair)
            .is_some_and(|queue| self.send.resources.operations.any_direct(queue.operations()))
        {
            if began.elapsed() < RECLAIM_TIMEOUT {
                self.process_all_completions();
                std::thread::yield_now();
            } else if let Some((pair, mut send_queue)) = self.closing.take(queue_pair) {
                log::debug!(
                    "verbs: a queue pair is destroyed at once, since the device has not released the user's memory"
                );
                self.counters.forced_destroys += 1;
                if pair.destroy() {
                    self.process_all_completions(); // late ones, while no other queue pair has the number
                    send_queue.clear(&mut self.send.resources);
                } else {
                    log::error!("verbs: the device does not release the user's memory");
                }
            }
        }
    }
}

/// Completes an operation: copies the bytes that it read, and has its result reported.
pub(super) fn complete_operation(id: u32, resources: &mut SendResources, queues: &Queues) {
    let Some(operation) = resources.operations.get(id) else { return };
    let old = match operation.kind {
        OpKind::Direct | OpKind::Put(_) => 0,
        OpKind::Get(buffer, sink) => {
            if let Some(from) = queues.send_buffer(buffer, sink.len()) {
                // SAFETY: within the region, a buffer that the device has filled; and the result is reported after this.
                unsafe { sink.fill(from) };
            }
            0
        }
        OpKind::Atomic(buffer) => {
            // SAFETY: within the region, a word that the device has written; a buffer begins at a multiple of 64.
            queues.send_buffer(buffer, 8).map_or(0, |word| unsafe { word.cast::<u64>().read() })
        }
    };
    resources.operations.complete(id, Ok(old));
}
