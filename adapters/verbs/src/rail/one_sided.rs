//! One-sided operations: the device reads, writes and changes memory of peers by itself.
//!
//! Up to [`max_send_size_bytes`](crate::Config::max_send_size_bytes) are copied to a buffer of the rail's, or from one; with more
//! the device touches the user's own memory, which is registered. What peers may not do, or lies out of bounds as far as their
//! keys tell, is not asked of the device, which would end the connection for it; so a connection ends that way where a key is
//! stale or forged. (A device may give the key of memory that was deregistered to what is registered next: then the stale one reaches
//! that, which is registered for peers, too.)

use std::ptr::NonNull;

use towline_core::rail::atomics::{Atomic, AtomicFlags, AtomicOp};
use towline_core::rail::native::{Key, Local, Native, NativeError, Region, Work as Asked};
use towline_core::rma::Access;
use towline_core::rail::{Cookie, Endpoint, Lane, SendError};

use crate::device::{Element, Fetch, Place, Region as Memory, Registered};
use crate::wire::remote_key::{LONGEST, Remote};
use crate::bookkeeping::layout::Layout;
use crate::rail::state::{Id, Rail, WORKS_TO_ONE, Way};
use crate::bookkeeping::send_queue::{Slot, Slots};
use crate::bookkeeping::operations::{Sink, What, Work};

/// So long the device may take until it has let go of the user's memory for a connection that ends; else its queue pair is destroyed at
/// once, whatever receive buffer goes with it.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(20);

impl Rail {
    /// # Safety
    /// As [`register`](towline_core::rail::Rail::register).
    pub(crate) unsafe fn register_memory(
        &mut self,
        base: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<(Region, Key), NativeError> {
        if !self.attributes.one_sided.any() {
            return Err(NativeError::NotAvailable);
        }
        // The device would need to know of the accelerator.
        if access.contains(Access::ACCELERATOR) || len as u64 > LONGEST {
            return Err(NativeError::NotAvailable);
        }
        let mut access = access & Access::ANY;
        if self.port.atomics.is_empty() {
            access -= Access::REMOTE_ATOMIC;
        }
        // SAFETY: passed on from the caller.
        let registered = unsafe { Registered::new(self.region.domain(), base, len, access) }.map_err(|why| {
            log::info!("verbs link {}: {len} bytes are not registered: {why}", self.config.link);
            NativeError::NotAvailable
        })?;
        let remote = Remote {
            address: base.addr() as u64,
            len: len as u64,
            key: registered.remote_key(),
            access,
            link: self.config.link,
        };
        let name = self.next_region;
        self.next_region += 1;
        self.registered.insert(name, registered);
        Ok((Region(name), remote.encode()))
    }

    /// # Safety
    /// As [`perform`](towline_core::rail::Rail::perform).
    pub(crate) unsafe fn perform_on(
        &mut self,
        on: Endpoint,
        native: &Native,
        cookie: Cookie,
    ) -> Result<Option<u64>, NativeError> {
        if !self.attributes.one_sided.any() {
            return Err(NativeError::NotAvailable);
        }
        if let Asked::Put(Local { len: 0, .. }) | Asked::Get(Local { len: 0, .. }) = native.work {
            return Ok(Some(0)); // a device may take no bytes for very many
        }
        let remote = Remote::decode(&native.key).filter(|remote| remote.link == self.config.link);
        let remote = remote.ok_or(NativeError::NotAvailable)?;
        let address = remote.place(&native.work, native.offset).ok_or(NativeError::NotAvailable)?;
        let place = Place { address, key: remote.key };
        let known = self.peers.get(on.0 as usize).and_then(Option::as_ref).ok_or(NativeError::Unreachable)?;
        let (Way::Up, Some(line)) = (known.way, &known.line) else {
            return Err(match self.not_up(on.0) {
                SendError::Unreachable => NativeError::Unreachable,
                _ => NativeError::Busy,
            });
        };
        if known.card.reads == 0 {
            return Err(NativeError::NotAvailable);
        }
        // The last may be one more than there is room for.
        if line.out.len() >= self.config.send_queue_frames as usize || line.out.count_works() >= WORKS_TO_ONE {
            return Err(NativeError::Busy);
        }
        let at = self.slots.works.next().ok_or(NativeError::Busy)?;
        let (number, endpoint) = (line.out.next(), on.0);
        let id = |ahead| Id::Send { endpoint, number: number.wrapping_add(ahead) }.word();
        let (what, leads, posted) = match native.work {
            Asked::Put(local) => {
                let (what, from) = self.source(&local, line.pair.inline())?;
                let read = self.layout.read.at(0).unwrap_or(usize::MAX);
                // SAFETY: the user's memory, for which the caller vouches, goes inline, or is registered and as it is until this is
                // told, or until `take_memory_back` has seen to it that the device does not read it any more; else it is a buffer that
                // is taken below.
                (what, true, unsafe { line.pair.put([id(0), id(1)], from, place, read) })
            }
            Asked::Get(local) => {
                let (what, to) = self.sink(&local)?;
                // SAFETY: as above.
                (what, false, unsafe { line.pair.get(id(0), to, place) })
            }
            Asked::Atomic(atomic, flags) => {
                let fetch = match atomic {
                    _ if flags != AtomicFlags::empty() => return Err(NativeError::NotAvailable),
                    Atomic::Op(AtomicOp::Add, operand) => Fetch::Add(operand),
                    Atomic::CompareSwap(compare, value) => Fetch::CompareSwap(compare, value),
                    Atomic::Op(..) => return Err(NativeError::NotAvailable),
                };
                let slot = self.slots.next(Lane::Eager).ok_or(NativeError::Busy)?;
                let old = self.layout.of_slot(slot).unwrap_or(usize::MAX);
                (What::Atomic(slot), false, line.pair.read_exposed(id(0), old, fetch, place))
            }
        };
        let Self { peers, slots, counters, failed, .. } = self;
        if let What::Put(Some(slot)) | What::Get(slot, _) | What::Atomic(slot) = what
            && !slots.take(slot)
        {
            log::error!("verbs: a buffer is not free that was so"); // nobody else takes any in between
        }
        slots.works.begin(Work { endpoint, cookie, what });
        let Some(line) = peers.get_mut(endpoint as usize).and_then(Option::as_mut).and_then(|it| it.line.as_mut())
        else {
            return Err(NativeError::Unreachable); // not reached
        };
        if leads {
            line.out.posted(Slot::Lead(at), false);
        }
        line.out.posted(Slot::Work(at), true);
        counters.one_sided += 1;
        counters.direct += u64::from(matches!(what, What::Direct));
        if let Err(why) = posted {
            // Some of it may be under way. The connection ends, and with it all that goes by it.
            log::debug!("verbs: an operation is refused: {why}");
            if !failed.contains(&endpoint) {
                failed.push(endpoint);
            }
        }
        Ok(None)
    }

    /// Where the device is to read what is put.
    fn source(&self, local: &Local, inline: u32) -> Result<(What, Element), NativeError> {
        let len = u32::try_from(local.len).map_err(|_| NativeError::NotAvailable)?;
        if len <= inline {
            let element = Element { addr: local.base.addr() as u64, length: len, lkey: 0 };
            return Ok((What::Put(None), element)); // it is read before this returns
        }
        if let Some(element) = self.own_element(local, len) {
            return Ok((What::Direct, element));
        }
        let (slot, at) = self.buffer(len)?;
        let (room, element) = (self.region.pointer(at, len as usize), self.region.element(at, len));
        let (Some(room), Some(element)) = (room, element) else { return Err(NativeError::NotAvailable) };
        // SAFETY: within the region, a buffer that the device is done with; the user's memory is readable, as promised to `perform`.
        unsafe { room.as_ptr().copy_from_nonoverlapping(local.base, len as usize) };
        Ok((What::Put(Some(slot)), element))
    }

    /// Where the device is to write what is got.
    fn sink(&self, local: &Local) -> Result<(What, Element), NativeError> {
        let len = u32::try_from(local.len).map_err(|_| NativeError::NotAvailable)?;
        if let Some(element) = self.own_element(local, len) {
            return Ok((What::Direct, element));
        }
        let (slot, at) = self.buffer(len)?;
        let (Some(element), Some(base)) = (self.region.element(at, len), NonNull::new(local.base)) else {
            return Err(NativeError::NotAvailable);
        };
        // SAFETY: as promised to `perform`; a peer that is lost or forgotten has its operations forgotten first.
        let sink = unsafe { Sink::new(base, len as usize) };
        Ok((What::Get(slot, sink), element))
    }

    /// The user's own memory, where that is worth it, and it is registered.
    fn own_element(&self, local: &Local, len: u32) -> Option<Element> {
        let long = len > self.config.short_bytes();
        self.registered.get(&local.region.filter(|_| long)?.0)?.element(local.base, len)
    }

    /// A buffer for so many bytes.
    fn buffer(&self, len: u32) -> Result<(Slot, usize), NativeError> {
        if len > self.config.max_send_size_bytes {
            return Err(NativeError::NotAvailable);
        }
        let lane = if len <= self.config.short_bytes() { Lane::Eager } else { Lane::Bulk };
        let slot = self.slots.next(lane).ok_or(NativeError::Busy)?;
        Ok((slot, self.layout.of_slot(slot).ok_or(NativeError::Busy)?))
    }

    /// Sees to it that the device does not touch the user's memory any more for a connection that has ended.
    pub(crate) fn take_memory_back(&mut self, queue_pair: u32) {
        let began = std::time::Instant::now();
        while self.leaving.out(queue_pair).is_some_and(|out| self.slots.works.any_direct(out.works())) {
            if began.elapsed() < PATIENCE {
                self.gather_all();
                std::thread::yield_now();
            } else if let Some((pair, mut out)) = self.leaving.take(queue_pair) {
                log::debug!("verbs: a queue pair is destroyed at once");
                self.counters.cut_short += 1;
                if pair.destroy() {
                    self.gather_all(); // what it has told, while no other queue pair has the number
                    out.abandon(&mut self.slots);
                } else {
                    log::error!("verbs: the device does not let go of memory that is not the rail's own");
                }
            }
        }
    }
}

/// An operation is done: takes what it brought, and has it told.
pub(crate) fn finish(at: u32, slots: &mut Slots, layout: &Layout, region: &Memory) {
    let Some(work) = slots.works.get(at) else { return };
    let bytes = |slot, len| layout.of_slot(slot).and_then(|at| region.pointer(at, len));
    let old = match work.what {
        What::Direct | What::Put(_) => 0,
        What::Get(slot, sink) => {
            if let Some(from) = bytes(slot, sink.len()) {
                // SAFETY: within the region, a buffer that the device has filled; and the operation is told after this.
                unsafe { sink.fill(from) };
            }
            0
        }
        // SAFETY: within the region, a word that the device has written; a buffer begins at a multiple of 64.
        What::Atomic(slot) => bytes(slot, 8).map_or(0, |word| unsafe { word.cast::<u64>().read() }),
    };
    slots.works.over(at, Ok(old));
}
