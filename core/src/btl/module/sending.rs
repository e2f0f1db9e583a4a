//! Processes, descriptors and sends of a module.

use zerocopy::FromZeros;

use super::dump::Dump;
use super::state::{Btl, Callback, Consumer, ErrorHandler, longest};
use super::types::{Counters, Immediate, Outcome};
use crate::btl::active::RegisterError;
use crate::btl::descriptor::{Descriptor, DescriptorError, DescriptorFlags, NO_ORDER, Properties, Segment};
use crate::btl::endpoint::{EndpointId, EndpointState, Proc};
use crate::btl::errors::{AllocError, Failure, ImmediateError, SendError};
use crate::btl::sends::{PendingSend, Stage};
use crate::convertor::Span;
use crate::rail::{self, COPIED, Capabilities, Cookie, FullRail, LINKED_HEAD, Lane, Peer, Shape, Unreachable, tags};
use crate::rma;
use crate::time::Instant;

impl<'m, R: FullRail> Btl<'m, R> {
    /// Adds processes. For each process, `endpoints` gets its endpoint, or the reason why there is none. If `reachable` is
    /// given, bit `i` of it says whether process `i` is reachable. If `procs` and `endpoints` differ in length, only the first
    /// processes are added, as many as both have room for. Returns how many are reachable. It may be called again at any time.
    ///
    /// A rail with [`SINGLE_ADD_PROCS`](crate::rail::Capabilities::SINGLE_ADD_PROCS) takes all processes in one call, including
    /// those that it cannot reach. In a second call each process gets [`Unreachable::TooLate`] (CONTRACTS B41).
    pub fn add_procs(
        &mut self,
        procs: &[Proc<'_>],
        endpoints: &mut [Result<EndpointId, Unreachable>],
        mut reachable: Option<&mut [u64]>,
    ) -> u32 {
        let mut count = 0;
        let single = self.rail.attributes().capabilities.contains(Capabilities::SINGLE_ADD_PROCS);
        let late = single && self.has_added;
        self.has_added |= !procs.is_empty() && !endpoints.is_empty();
        for (index, (proc, endpoint)) in procs.iter().zip(endpoints).enumerate() {
            *endpoint = if late { Err(Unreachable::TooLate) } else { self.add_proc(*proc) };
            count += u32::from(endpoint.is_ok());
            if let Some(word) = reachable.as_deref_mut().and_then(|mask| mask.get_mut(index >> 6)) {
                let bit = 1u64 << (index & 63);
                *word = if endpoint.is_ok() { *word | bit } else { *word & !bit };
            }
        }
        count
    }

    fn add_proc(&mut self, proc: Proc<'_>) -> Result<EndpointId, Unreachable> {
        let state = EndpointState { proc: proc.id, ..EndpointState::new_zeroed() };
        let handle = self.endpoints.take(state).map_err(|_| Unreachable::Full)?;
        match self.rail.add_peer(Peer(handle.slot()), proc.card) {
            Ok(endpoint) => {
                if let Some(state) = self.endpoints.get_mut(handle) {
                    state.rail = endpoint;
                }
                Ok(EndpointId(handle))
            }
            Err(reason) => {
                self.endpoints.free(handle);
                Err(reason)
            }
        }
    }

    /// Removes processes and frees everything that was kept for them. Sends to them end with [`Failure::Removed`], and the next
    /// [`progress`](Self::progress) makes their callbacks. Returns how many of the endpoints were known.
    ///
    /// Two sides count the frames between them from the time at which they add each other. So if a process is added again, and
    /// [ordered](crate::btl::descriptor::ORDER) sends go to it, that process has to remove this one, too. Not all rails tell it
    /// about the removal, so the user has to.
    pub fn del_procs(&mut self, endpoints: &[EndpointId]) -> u32 {
        let mut count = 0;
        for endpoint in endpoints {
            let Some(state) = self.endpoints.get(endpoint.0).copied() else { continue };
            self.forget(*endpoint);
            if !state.deleted {
                self.rail.del_peer(state.rail);
            }
            self.rma.forget(Peer(endpoint.0.slot()), rma::Failure::Removed);
            self.endpoints.free(endpoint.0);
            self.fail_in_place(*endpoint, Failure::Removed);
            count += 1;
        }
        count
    }

    /// Registers the consumer of the frames of a tag that arrive by this module's rail. Frames of a tag without a consumer are
    /// dropped and counted.
    ///
    /// # Errors
    /// [`RegisterError`] for tag 255, and if the tag has a consumer.
    pub fn register(&mut self, tag: u8, consumer: &'m dyn Consumer<R>) -> Result<(), RegisterError> {
        if tag == tags::BTL_BASE {
            return Err(RegisterError::Taken); // the module itself consumes the frames of this tag
        }
        self.consumers.register(tag, consumer)
    }

    /// Removes the consumer of a tag. Returns `false` if there was none.
    pub fn unregister(&mut self, tag: u8) -> bool {
        self.consumers.unregister(tag)
    }

    /// Sets the error handler, which is called for lost peers. It replaces an earlier one.
    pub fn register_error(&mut self, handler: &'m dyn ErrorHandler<R>) {
        self.on_error = Some(handler);
    }

    /// Allocates a descriptor for a peer, with a segment of its own of up to `size` bytes: [`segment`](Self::segment) returns
    /// its length. The bytes have the values of an earlier use. With an order other than [`NO_ORDER`], sends of the descriptor
    /// arrive after all frames that were sent to the peer before.
    ///
    /// # Errors
    /// [`AllocError`].
    pub fn alloc(
        &mut self,
        endpoint: EndpointId,
        order: u8,
        size: usize,
        flags: DescriptorFlags,
    ) -> Result<Descriptor, AllocError> {
        self.check_order(endpoint, order)?;
        self.descriptors.take(size, flags, order).ok_or(AllocError::Exhausted)
    }

    /// Checks that an order is the order of a complete operation to the same peer, or none (CONTRACTS B47).
    fn check_order(&self, endpoint: EndpointId, order: u8) -> Result<(), AllocError> {
        let state = self.reachable(endpoint).ok_or(AllocError::Unreachable)?;
        if state.counts.is_valid_order(order) { Ok(()) } else { Err(AllocError::UnknownOrder) }
    }

    /// Frees a descriptor.
    ///
    /// # Errors
    /// [`DescriptorError::InFlight`] while a send of the descriptor is in progress, [`DescriptorError::Stale`] if it was freed
    /// before.
    pub fn free(&mut self, descriptor: Descriptor) -> Result<(), DescriptorError> {
        self.descriptors.free(descriptor)
    }

    /// Allocates a descriptor for `reserve` bytes, which the caller writes, followed by up to `size` bytes of `data`. Returns
    /// how many bytes of `data` the descriptor has. For the rest, the caller calls again with the window of `data` that begins
    /// there. If the data is contiguous, the descriptor refers to it; otherwise the data is packed into the descriptor.
    ///
    /// # Errors
    /// [`AllocError`].
    ///
    /// # Safety
    /// The memory of `data`, and the layout that it may refer to, is readable and unchanging until the descriptor is freed, or
    /// until all of its sends are complete and no more follow.
    pub unsafe fn prepare_src(
        &mut self,
        endpoint: EndpointId,
        data: Span,
        order: u8,
        reserve: usize,
        size: u64,
        flags: DescriptorFlags,
    ) -> Result<(Descriptor, u64), AllocError> {
        self.check_order(endpoint, order)?;
        let limit = longest(self.rail.attributes()) as usize;
        let room = limit.checked_sub(reserve).ok_or(AllocError::TooLong)?;
        if reserve > self.descriptors.bytes() {
            return Err(AllocError::TooLong);
        }
        let asked = size != 0 && !data.is_empty();
        let mut data = data.window(0, size.min(room as u64));
        if data.as_contiguous().is_none() {
            data = data.window(0, self.descriptors.bytes().saturating_sub(reserve) as u64);
        }
        if asked && data.is_empty() {
            return Err(AllocError::TooLong);
        }
        if data.as_contiguous().is_some() {
            let descriptor = self.descriptors.take(reserve, flags, order).ok_or(AllocError::Exhausted)?;
            if !data.is_empty() && self.descriptors.attach(descriptor, data).is_err() {
                return Err(AllocError::Exhausted);
            }
            return Ok((descriptor, data.len()));
        }
        let len = reserve.saturating_add(data.len() as usize);
        let descriptor = self.descriptors.take(len, flags, order).ok_or(AllocError::Exhausted)?;
        let packed = self.descriptors.own(descriptor).unwrap_or(Span::EMPTY).window(reserve as u64, data.len());
        if let Some((to, room)) = packed.as_contiguous() {
            // SAFETY: the descriptor's own memory, which nobody else uses; the caller vouches for the data.
            unsafe { data.pack(to, room) };
        }
        Ok((descriptor, data.len()))
    }

    /// Appends a segment of user memory to a descriptor.
    ///
    /// # Errors
    /// [`DescriptorError`], also if the descriptor has [`MAX_SEGMENTS`](crate::btl::descriptor::MAX_SEGMENTS) already.
    ///
    /// # Safety
    /// As for [`prepare_src`](Self::prepare_src).
    pub unsafe fn attach(&mut self, descriptor: Descriptor, memory: Span) -> Result<(), DescriptorError> {
        self.descriptors.attach(descriptor, memory)
    }

    /// Makes a descriptor's own segment shorter.
    ///
    /// # Errors
    /// [`DescriptorError`].
    pub fn shorten(&mut self, descriptor: Descriptor, len: usize) -> Result<(), DescriptorError> {
        self.descriptors.shorten(descriptor, len as u64)
    }

    /// The bytes of a descriptor's own segment. The caller writes them before it sends the descriptor.
    ///
    /// # Errors
    /// [`DescriptorError::InFlight`] while a send of the descriptor is in progress, [`DescriptorError::Stale`] if it was freed.
    pub fn memory(&mut self, descriptor: Descriptor) -> Result<&mut [u8], DescriptorError> {
        self.descriptors.check_idle(descriptor)?;
        let (base, len) = self.descriptors.own(descriptor)?.as_contiguous().ok_or(DescriptorError::Stale)?;
        // SAFETY: the descriptor's own memory lives for 'm and was zeroed at first; the borrow of the module keeps
        // others out, and no rail reads it, since no send is in progress.
        Ok(unsafe { core::slice::from_raw_parts_mut(base, len) })
    }

    /// One segment of a descriptor. Segment 0 is its own memory, the others are the user's. The address of a segment that is not
    /// contiguous is 0.
    pub fn segment(&self, descriptor: Descriptor, index: usize) -> Option<Segment> {
        let span = self.descriptors.segments(descriptor)?.get(index)?;
        let addr = span.as_contiguous().map_or(0, |(base, _)| base as usize as u64);
        Some(Segment { addr, len: span.len() })
    }

    /// The properties that the owner of a descriptor has set.
    pub fn properties(&self, descriptor: Descriptor) -> Option<&Properties<Callback<'m, R>>> {
        self.descriptors.properties(descriptor)
    }

    /// The properties of a descriptor, for its owner to set.
    pub fn properties_mut(&mut self, descriptor: Descriptor) -> Option<&mut Properties<Callback<'m, R>>> {
        self.descriptors.properties_mut(descriptor)
    }

    /// Sends a descriptor. Several sends of one descriptor may be in progress at once. The descriptor belongs to the module
    /// until the send is complete, which either [`Outcome::Sent`] or the callback reports. A full rail is not an error: the
    /// send waits in the module, and later sends to the same peer wait behind it, except those with
    /// [`PRIORITY`](DescriptorFlags::PRIORITY).
    ///
    /// # Errors
    /// [`SendError`]: nothing is sent then, no callback follows, and the descriptor is the caller's.
    pub fn send(&mut self, to: EndpointId, descriptor: Descriptor, tag: u8) -> Result<Outcome, SendError> {
        if matches!(tag, tags::MAX | tags::BTL_BASE) {
            return Err(SendError::InvalidTag);
        }
        let segments = self.descriptors.segments(descriptor).ok_or(SendError::Stale)?;
        let len = segments.iter().fold(0u64, |len, segment| len.saturating_add(segment.len()));
        if len > u64::from(longest(self.rail.attributes())) {
            return Err(SendError::TooLong);
        }
        let flags = self.descriptors.properties(descriptor).map_or(DescriptorFlags::empty(), |own| own.flags);
        let ordered = self.descriptors.properties(descriptor).is_some_and(|own| own.order != NO_ORDER);
        let urgent = flags.contains(DescriptorFlags::PRIORITY) && !ordered;
        let waits = self.reachable(to).ok_or(SendError::Unreachable)?.has_earlier(urgent);
        let send = PendingSend { descriptor, endpoint: to, tag, stage: Stage::Waiting, urgent, ordered };
        let handle = self.sends.begin(send).ok_or(SendError::Full)?;
        self.descriptors.begin(descriptor);
        let waits = waits || (ordered && !self.ordered_may_leave(to)); // this may ask the peer, so it comes after the slot was taken
        let stage = if waits { Stage::Waiting } else { self.transmit(handle, send) };
        let at_once = match stage {
            Stage::Finished(Ok(())) => !flags.contains(DescriptorFlags::SEND_ALWAYS_CALLBACK),
            Stage::Finished(Err(_)) => true,
            _ => false,
        };
        if at_once {
            self.sends.end(handle);
            self.descriptors.end(descriptor);
        } else {
            self.set_stage(handle, stage);
        }
        match stage {
            Stage::Finished(Err(Failure::Refused(rail::SendError::TooLong))) => return Err(SendError::TooLong),
            Stage::Finished(Err(_)) => return Err(SendError::Unreachable),
            _ => self.counters.sent = self.counters.sent.wrapping_add(1),
        }
        if stage != Stage::Finished(Ok(())) {
            return Ok(Outcome::Queued);
        }
        if at_once {
            self.counters.completed = self.counters.completed.wrapping_add(1);
            self.note_completion(to);
            self.free_if_owned(descriptor, flags);
        }
        Ok(Outcome::Sent)
    }

    /// Sends header and payload now, or does not send them.
    ///
    /// # Errors
    /// [`ImmediateError`]. If the caller wants a descriptor and one is free, [`ImmediateError::Busy`] has one with a segment for
    /// header and payload, which the caller fills and sends.
    ///
    /// # Safety
    /// The memory of the payload is readable and unchanging during the call, and is not the rail's own.
    #[inline]
    pub unsafe fn sendi(&mut self, to: EndpointId, what: Immediate<'_>) -> Result<(), ImmediateError> {
        if matches!(what.tag, tags::MAX | tags::BTL_BASE) {
            return Err(ImmediateError::InvalidTag);
        }
        // Most sends: without order and signal, and of few bytes.
        let len = (what.header.len() as u64).saturating_add(what.payload.len());
        let urgent = what.flags.contains(DescriptorFlags::PRIORITY);
        if what.order == NO_ORDER
            && !what.flags.contains(DescriptorFlags::SIGNAL)
            && let Some(state) = self.endpoints.get_mut(to.0).filter(|state| !state.lost && !state.has_earlier(urgent))
            && what.payload.len() <= COPIED
            && what.header.len() <= LINKED_HEAD
            && len <= u64::from(self.rail.attributes().eager_limit)
        {
            let shape = Shape { tag: what.tag, lane: Lane::Eager, header: what.header.len() as u8, len: len as u32 };
            // One call of the rail. A body of this length is never sent in place, so the cookie is not used.
            // SAFETY: the caller vouches for the payload.
            let sent = unsafe { self.rail.send(state.rail, shape, what.header, what.payload, Cookie(0)) };
            debug_assert!(sent != Ok(rail::Sent::InPlace), "a body of at most COPIED bytes is copied");
            if sent.is_ok() {
                state.counts.count_sent();
                state.counts.on_completion();
                self.counters.sent = self.counters.sent.wrapping_add(1);
                self.counters.completed = self.counters.completed.wrapping_add(1);
                return Ok(());
            }
        }
        // SAFETY: passed on from the caller.
        unsafe { self.sendi_slowly(to, what) }
    }

    /// Any send that [`sendi`](Self::sendi) has not done already.
    ///
    /// # Safety
    /// As [`sendi`](Self::sendi).
    #[inline(never)]
    unsafe fn sendi_slowly(&mut self, to: EndpointId, what: Immediate<'_>) -> Result<(), ImmediateError> {
        let state = self.reachable(to).copied().ok_or(ImmediateError::Unreachable)?;
        if !state.counts.is_valid_order(what.order) {
            return Err(ImmediateError::UnknownOrder);
        }
        let ordered = what.order != NO_ORDER;
        let urgent = what.flags.contains(DescriptorFlags::PRIORITY) && !ordered;
        let len = (what.header.len() as u64).saturating_add(what.payload.len());
        let eager = u64::from(self.rail.attributes().eager_limit);
        let Some(len) = u32::try_from(len).ok().filter(|len| u64::from(*len) <= eager) else {
            return Err(ImmediateError::TooLong);
        };
        let header = what.header.len().min(LINKED_HEAD) as u8;
        let shape = Shape { tag: what.tag, lane: Lane::Eager, header, len };
        let waits = state.has_earlier(urgent) || (ordered && !self.all_arrived(to));
        let sent = if waits {
            Err(rail::SendError::Busy)
        } else {
            // SAFETY: the caller vouches for the payload.
            unsafe { rail::send_by_grant(&mut self.rail, state.rail, shape, what.header, what.payload) }
        };
        match sent {
            Ok(_) => {
                if what.flags.contains(DescriptorFlags::SIGNAL) {
                    self.rail.signal(state.rail);
                }
                if let Some(state) = self.endpoints.get_mut(to.0) {
                    state.counts.count_sent();
                }
                self.note_completion(to);
                self.counters.sent = self.counters.sent.wrapping_add(1);
                self.counters.completed = self.counters.completed.wrapping_add(1);
                Ok(())
            }
            Err(rail::SendError::Busy) if what.or_descriptor => {
                Err(ImmediateError::Busy(self.descriptors.take(len as usize, what.flags, what.order)))
            }
            Err(rail::SendError::Busy) => Err(ImmediateError::Busy(None)),
            Err(rail::SendError::TooLong) => Err(ImmediateError::TooLong),
            Err(rail::SendError::Unreachable) => Err(ImmediateError::Unreachable),
        }
    }

    /// The latest time at which [`progress`](Self::progress) has to be called, even if nothing arrives.
    pub fn poll_at(&self) -> Option<Instant> {
        self.rail.poll_at()
    }

    /// Tells the rail that the caller is about to sleep; see [`Rail::arm`](crate::rail::Rail::arm). Returns `false` also while
    /// the module has work of its own.
    pub fn arm(&mut self) -> bool {
        let pending = self.pending.len();
        // A reply wakes this side.
        let waits = self.counts_due || self.urgent.len() != 0 || (pending != 0 && pending > self.awaiting_replies());
        let is_idle = !waits && self.finished.len() == 0 && !self.receives.has_waiting();
        is_idle && self.rma.is_idle() && self.rail.arm()
    }

    /// Sets whether only sends with [`DescriptorFlags::SIGNAL`] wake a sleeping peer. Before the first call, any send wakes it.
    /// This has an effect on rails with [`Capabilities::SIGNALED`](crate::rail::Capabilities::SIGNALED); other rails ignore it.
    pub fn wake_on_demand(&mut self, on: bool) {
        self.rail.wake_on_demand(on);
    }

    /// The rail.
    pub const fn rail(&self) -> &R {
        &self.rail
    }

    /// Counts since set-up.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether an endpoint was added and not removed, and its peer is not lost.
    pub fn is_reachable(&self, endpoint: EndpointId) -> bool {
        self.reachable(endpoint).is_some()
    }

    /// Whether an endpoint may be removed without a loss of messages: its peer is lost or was removed, or has closed in order and no
    /// frame of it is left. Not all rails see at once that a peer has closed; all do in [`progress`](Self::progress).
    pub fn has_ended(&mut self, endpoint: EndpointId) -> bool {
        let Some(state) = self.endpoints.get(endpoint.0).copied() else { return true };
        let has_frame = self.receives.has_frame_of(Peer(endpoint.0.slot()));
        state.lost || (!has_frame && self.rail.has_closed(state.rail))
    }

    /// Whether all sends and one-sided operations are complete, and the rail has sent all frames, except those to lost peers. If not,
    /// make progress and ask again. A caller asks before it drops the module, since frames may be lost with it.
    pub fn is_drained(&self) -> bool {
        let has_left = |state: &EndpointState| state.lost || self.rail.drained(state.rail);
        let said = self.sends.used() == 0 && !self.counts_due && self.rma.is_idle() && self.rma.is_flushed(None);
        said && (0..self.endpoints.capacity()).filter_map(|slot| self.endpoints.at(slot)).all(has_left)
    }

    /// The state of the module, and of an endpoint if one is given, for diagnosis. It may be called within a callback. `verbose`
    /// adds more fields.
    pub const fn dump(&self, endpoint: Option<EndpointId>, verbose: bool) -> Dump<'_, 'm, R> {
        Dump { btl: self, endpoint, verbose }
    }

    /// Ends the module: removes all peers and makes the callbacks that are due. Returns the rail, and the number of descriptors
    /// that the user did not free.
    pub fn finalize(mut self) -> (R, u32) {
        for slot in 0..self.endpoints.capacity() {
            if let Some(handle) = self.endpoints.handle(slot) {
                self.del_procs(&[EndpointId(handle)]);
            }
        }
        self.in_progress = true;
        self.send_waiting();
        self.run_callbacks();
        self.run_rma_callbacks();
        (self.rail, self.descriptors.used())
    }

    /// Notes that an operation to a peer is complete.
    pub(super) fn note_completion(&mut self, endpoint: EndpointId) {
        if let Some(state) = self.endpoints.get_mut(endpoint.0) {
            state.counts.on_completion();
        }
    }

    #[inline]
    pub(super) fn reachable(&self, endpoint: EndpointId) -> Option<&EndpointState> {
        self.endpoints.get(endpoint.0).filter(|state| !state.lost)
    }
}
