//! Processes, descriptors and sends of a module.

use zerocopy::FromZeros;

use super::dump::Dump;
use super::state::{Btl, Callback, Consumer, ErrorHandler, longest};
use super::types::{Counters, Immediate, Outcome};
use crate::btl::active::RegisterError;
use crate::btl::descriptor::{Descriptor, DescriptorError, DescriptorFlags, NO_ORDER, Properties, Segment};
use crate::btl::endpoint::{EndpointId, Proc, Reach};
use crate::btl::errors::{AllocError, Failure, ImmediateError, SendError};
use crate::btl::sends::{Operation, Stage};
use crate::convertor::Span;
use crate::rail::{self, Capabilities, FullRail, LINKED_HEAD, Lane, Peer, Shape, Unreachable, tags};
use crate::rma;
use crate::time::Instant;

impl<'m, R: FullRail> Btl<'m, R> {
    /// Adds processes, at any time and in any number. For each, `endpoints` gets its endpoint or why there is none, and
    /// bit `i` of `reachable`, if wanted, says which. Returns how many are reachable. Takes as many as both lists have.
    ///
    /// A rail that is [`SINGLE_ADD_PROCS`](crate::rail::Capabilities::SINGLE_ADD_PROCS) takes all processes in one call, those that it
    /// cannot reach too: of a second one each is [`Unreachable::TooLate`] (CONTRACTS B41).
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
        let reach = Reach { proc: proc.id, ..Reach::new_zeroed() };
        let handle = self.endpoints.take(reach).map_err(|_| Unreachable::Full)?;
        match self.rail.add_peer(Peer(handle.slot()), proc.card) {
            Ok(endpoint) => {
                if let Some(reach) = self.endpoints.get_mut(handle) {
                    reach.rail = endpoint;
                }
                Ok(EndpointId(handle))
            }
            Err(reason) => {
                self.endpoints.free(handle);
                Err(reason)
            }
        }
    }

    /// Removes processes and frees what was kept for them. Before they are added again, with an [order](crate::btl::descriptor::ORDER) to be asked for, they
    /// have to remove this one as well, as what was sent to each other is counted from then on; not all rails tell them. Sends to them end with [`Failure::Removed`]; their callbacks
    /// are made by the next [`progress`](Self::progress). Returns how many of the endpoints were known.
    pub fn del_procs(&mut self, endpoints: &[EndpointId]) -> u32 {
        let mut count = 0;
        for endpoint in endpoints {
            let Some(reach) = self.endpoints.get(endpoint.0).copied() else { continue };
            self.forget(*endpoint);
            self.rail.del_peer(reach.rail);
            self.rma.forget(Peer(endpoint.0.slot()), rma::Failure::Removed);
            self.endpoints.free(endpoint.0);
            self.fail_in_place(*endpoint, Failure::Removed);
            count += 1;
        }
        count
    }

    /// Registers who takes the frames of a tag that come by this module's rail. Frames of a tag that nobody takes are dropped and counted.
    ///
    /// # Errors
    /// [`RegisterError`] for 255, and where the tag has a consumer.
    pub fn register(&mut self, tag: u8, consumer: &'m dyn Consumer<R>) -> Result<(), RegisterError> {
        if tag == tags::BTL_BASE {
            return Err(RegisterError::Taken); // by the module's own one-sided operations
        }
        self.active.register(tag, consumer)
    }

    /// Takes a registration back; `false` where there was none.
    pub fn unregister(&mut self, tag: u8) -> bool {
        self.active.unregister(tag)
    }

    /// Sets who is told of lost peers, in place of whoever was before.
    pub fn register_error(&mut self, handler: &'m dyn ErrorHandler<R>) {
        self.on_error = Some(handler);
    }

    /// A descriptor for a peer, with flags, and a segment of `size` bytes of its own, or of fewer: [`segment`](Self::segment) says
    /// how many. What is in them is left from earlier use. With another order than [`NO_ORDER`] its sends arrive after all that
    /// was sent to the peer before.
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

    /// An order is that of an operation to the same peer that is complete (CONTRACTS B47).
    fn check_order(&self, endpoint: EndpointId, order: u8) -> Result<(), AllocError> {
        let reach = self.reach(endpoint).ok_or(AllocError::Unreachable)?;
        if reach.counts.takes(order) { Ok(()) } else { Err(AllocError::TooEarly) }
    }

    /// Gives a descriptor back.
    ///
    /// # Errors
    /// [`DescriptorError::InFlight`] while a send of it is not complete, [`DescriptorError::Stale`] the second time.
    pub fn free(&mut self, descriptor: Descriptor) -> Result<(), DescriptorError> {
        self.descriptors.free(descriptor)
    }

    /// A descriptor for `reserve` bytes, which the caller writes, and user data behind them: up to `size` bytes of
    /// `data`, or fewer. Returns how many; the rest is asked for with a window of `data` that begins there. Contiguous
    /// data stays where it is, other data is packed.
    ///
    /// # Errors
    /// [`AllocError`].
    ///
    /// # Safety
    /// The memory of `data` is readable and unchanging until the descriptor is freed, or all its sends are complete and
    /// no more follow; and so is the layout that it may refer to.
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
        let mut data = data.window(0, size.min(room as u64));
        if data.as_contiguous().is_some() {
            let descriptor = self.descriptors.take(reserve, flags, order).ok_or(AllocError::Exhausted)?;
            if !data.is_empty() && self.descriptors.attach(descriptor, data).is_err() {
                return Err(AllocError::Exhausted);
            }
            return Ok((descriptor, data.len()));
        }
        data = data.window(0, self.descriptors.bytes().saturating_sub(reserve) as u64);
        let len = reserve.saturating_add(data.len() as usize);
        let descriptor = self.descriptors.take(len, flags, order).ok_or(AllocError::Exhausted)?;
        let packed = self.descriptors.own(descriptor).unwrap_or(Span::EMPTY).window(reserve as u64, data.len());
        if let Some((to, room)) = packed.as_contiguous() {
            // SAFETY: the descriptor's own memory, which no one else has; the caller vouches for the data.
            unsafe { data.pack(to, room) };
        }
        Ok((descriptor, data.len()))
    }

    /// Adds a segment of user memory to a descriptor, behind those that it has.
    ///
    /// # Errors
    /// [`DescriptorError`], for one more than [`MAX_SEGMENTS`](crate::btl::descriptor::MAX_SEGMENTS) too.
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

    /// The bytes of a descriptor's own segment, to be written before it is sent.
    ///
    /// # Errors
    /// [`DescriptorError::InFlight`] while a send of it is not complete.
    pub fn memory(&mut self, descriptor: Descriptor) -> Result<&mut [u8], DescriptorError> {
        self.descriptors.idle(descriptor)?;
        let (base, len) = self.descriptors.own(descriptor)?.as_contiguous().ok_or(DescriptorError::Stale)?;
        // SAFETY: the descriptor's own memory lives for 'm and was zeroed at first; the borrow of the module keeps
        // others out, and no rail reads it, since no send is under way.
        Ok(unsafe { core::slice::from_raw_parts_mut(base, len) })
    }

    /// One segment of a descriptor: 0 is its own memory, the others are the user's. A segment that is not contiguous
    /// has address 0.
    pub fn segment(&self, descriptor: Descriptor, index: usize) -> Option<Segment> {
        let span = self.descriptors.segments(descriptor)?.get(index)?;
        let addr = span.as_contiguous().map_or(0, |(base, _)| base as usize as u64);
        Some(Segment { addr, len: span.len() })
    }

    /// What its owner keeps with a descriptor.
    pub fn properties(&self, descriptor: Descriptor) -> Option<&Properties<Callback<'m, R>>> {
        self.descriptors.properties(descriptor)
    }

    /// What its owner keeps with a descriptor, to be set.
    pub fn properties_mut(&mut self, descriptor: Descriptor) -> Option<&mut Properties<Callback<'m, R>>> {
        self.descriptors.properties_mut(descriptor)
    }

    /// Sends a descriptor. One descriptor may be sent several times at once. It belongs to the module until the send
    /// is complete, which is told either by [`Outcome::Sent`] or by the callback. A full rail is no error: the send
    /// waits in the module, and those that follow to the same peer wait behind it, but for those with
    /// [`PRIORITY`](DescriptorFlags::PRIORITY).
    ///
    /// # Errors
    /// [`SendError`]; nothing is sent then, no callback follows, and the descriptor is the caller's.
    pub fn send(&mut self, to: EndpointId, descriptor: Descriptor, tag: u8) -> Result<Outcome, SendError> {
        if matches!(tag, tags::MAX | tags::BTL_BASE) {
            return Err(SendError::NotATag);
        }
        let segments = self.descriptors.segments(descriptor).ok_or(SendError::Stale)?;
        let len = segments.iter().fold(0u64, |len, segment| len.saturating_add(segment.len()));
        if len > u64::from(longest(self.rail.attributes())) {
            return Err(SendError::TooLong);
        }
        let flags = self.descriptors.properties(descriptor).map_or(DescriptorFlags::empty(), |own| own.flags);
        let ordered = self.descriptors.properties(descriptor).is_some_and(|own| own.order != NO_ORDER);
        let urgent = flags.contains(DescriptorFlags::PRIORITY) && !ordered;
        let waits = self.reach(to).ok_or(SendError::Unreachable)?.has_before(urgent);
        let operation = Operation { descriptor, endpoint: to, tag, stage: Stage::Waiting, urgent, ordered };
        let handle = self.sends.begin(operation).ok_or(SendError::Full)?;
        self.descriptors.begin(descriptor);
        let waits = waits || (ordered && !self.is_settled(to)); // which it is asked for, so not of one that is not taken
        let stage = if waits { Stage::Waiting } else { self.transmit(handle, operation) };
        let at_once = match stage {
            Stage::Finished(Ok(())) => !flags.contains(DescriptorFlags::SEND_ALWAYS_CALLBACK),
            Stage::Finished(Err(_)) => true,
            _ => false,
        };
        if at_once {
            self.sends.end(handle);
            self.descriptors.end(descriptor);
        } else {
            self.enter(handle, stage);
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
            self.complete(to);
            self.free_if_owned(descriptor, flags);
        }
        Ok(Outcome::Sent)
    }

    /// Sends header and payload now, or not at all.
    ///
    /// # Errors
    /// [`ImmediateError::Busy`] gives, if wanted and to be had, a descriptor with a segment for header and payload,
    /// which the caller fills and sends.
    ///
    /// # Safety
    /// The payload's memory is readable during the call, and not the rail's own.
    pub unsafe fn sendi(&mut self, to: EndpointId, what: Immediate<'_>) -> Result<(), ImmediateError> {
        if matches!(what.tag, tags::MAX | tags::BTL_BASE) {
            return Err(ImmediateError::NotATag);
        }
        let reach = self.reach(to).copied().ok_or(ImmediateError::Unreachable)?;
        if !reach.counts.takes(what.order) {
            return Err(ImmediateError::TooEarly);
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
        let waits = reach.has_before(urgent) || (ordered && !self.has_all(to));
        let granted = if waits { Err(rail::SendError::Busy) } else { self.rail.reserve(reach.rail, shape) };
        match granted {
            Ok(mut grant) => {
                grant.write(0, what.header);
                // SAFETY: the caller vouches for the payload.
                unsafe { grant.gather(what.header.len(), what.payload) };
                let ticket = grant.finish();
                self.rail.commit(ticket);
                if what.flags.contains(DescriptorFlags::SIGNAL) {
                    self.rail.signal(reach.rail);
                }
                if let Some(reach) = self.endpoints.get_mut(to.0) {
                    reach.counts.left();
                }
                self.complete(to);
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

    /// When [`progress`](Self::progress) must be called at the latest, although nothing arrives.
    pub fn poll_at(&self) -> Option<Instant> {
        self.rail.poll_at()
    }

    /// Says that the caller is about to sleep; see [`Rail::arm`](crate::rail::Rail::arm). `false` also while the module has work of its own.
    pub fn arm(&mut self) -> bool {
        let pending = self.pending.len();
        // An answer wakes this side.
        let waits = self.counts_due || self.urgent.len() != 0 || (pending != 0 && pending > self.awaiting_answers());
        let is_idle = !waits && self.finished.len() == 0 && !self.receives.is_parked();
        is_idle && self.rma.is_idle() && self.rail.arm()
    }

    /// Whether who sleeps at the other side is woken only by sends with [`DescriptorFlags::SIGNAL`]; at first any wakes. Of use
    /// over a rail that is [`Capabilities::SIGNALED`](crate::rail::Capabilities::SIGNALED), ignored by others.
    pub fn wake_on_demand(&mut self, on: bool) {
        self.rail.wake_on_demand(on);
    }

    /// The rail.
    pub const fn rail(&self) -> &R {
        &self.rail
    }

    /// What happened so far.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether an endpoint was added and not removed, and its peer not lost.
    pub fn is_reachable(&self, endpoint: EndpointId) -> bool {
        self.reach(endpoint).is_some()
    }

    /// The module's state, or an endpoint's, for diagnosis; also within a callback. With `verbose`, more of it.
    pub const fn dump(&self, endpoint: Option<EndpointId>, verbose: bool) -> Dump<'_, 'm, R> {
        Dump { btl: self, endpoint, verbose }
    }

    /// Ends the module: removes all peers and makes the callbacks that are due. Returns the rail, and how many
    /// descriptors the user never freed.
    pub fn finalize(mut self) -> (R, u32) {
        for slot in 0..self.endpoints.capacity() {
            if let Some(handle) = self.endpoints.handle(slot) {
                self.del_procs(&[EndpointId(handle)]);
            }
        }
        self.in_progress = true;
        self.push_out();
        self.call_back();
        self.call_back_rma();
        (self.rail, self.descriptors.used())
    }

    /// An operation to a peer is complete.
    pub(super) fn complete(&mut self, endpoint: EndpointId) {
        if let Some(reach) = self.endpoints.get_mut(endpoint.0) {
            reach.counts.completes();
        }
    }

    #[inline]
    pub(super) fn reach(&self, endpoint: EndpointId) -> Option<&Reach> {
        self.endpoints.get(endpoint.0).filter(|reach| !reach.lost)
    }
}
