//! The initiator: it begins operations, sends their requests, and takes in the answers.

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::arrival::{deliver, release, remote_buffer_of};
use super::device;
use super::engine::Rma;
use super::errors::{BeginError, Failure};
use super::frames::{
    ANSWER, ATOMIC, Answer, DATA, EXPOSED, GET, GET_EXPOSED, NOT_READ, PUT, PUT_EXPOSED, REQUEST, Request,
};
use super::handle::RemoteMemory;
use super::operation::{ATOMIC_LEN, Finished, Kind, Method, Operation, OperationState, Operations, Status, Transfer};
use super::registry::Registration;
use super::routes::{MAX_EXPOSED, RMA_COOKIE, Route, Routes};
use crate::convertor::Span;
use crate::pool::Handle;
use crate::rail::access::Access;
use crate::rail::native::Region;
use crate::rail::tags;
use crate::rail::{
    Cookie, Delivery, Endpoint, Frame, FullRail, Lane, Peer, Rail, RemoteBuffer, SendError, Sent, Shape, SingleCopy,
};

impl Rma<'_> {
    #[cfg(test)]
    pub fn only_operation(&self) -> Handle {
        let Operations { slots, .. } = &self.operations;
        (0..slots.touched()).find_map(|slot| slots.handle(slot)).expect("a slot is in use")
    }

    /// Begins an operation on `remote` memory of `to`, from `offset` on. With a `registration`, local memory is checked
    /// against it, and is not deregistered before the operation has ended.
    ///
    /// # Safety
    /// Local memory is readable and unchanging for a put, writable and nobody else's for a get, until the operation is
    /// [`finished`](Self::next_finished).
    pub unsafe fn begin(
        &mut self,
        routes: &mut impl Routes,
        to: Peer,
        what: Transfer,
        registration: Option<Registration>,
        remote: &RemoteMemory,
        offset: u64,
    ) -> Result<Operation, BeginError> {
        let mut state = new_state(to, what, remote, offset)?;
        state.registration = registration.map_or(0, |registration| registration.0.to_bits());
        self.check_local(registration, &state)?;
        let native = registration.and_then(|registration| self.registry.get(registration.0)?.native());
        (state.region, state.has_region) = native.map_or((Region(0), false), |native| (native.region, true));
        if let Some(route) = routes.device_route(to) {
            state.choose_method(&route.one_sided, remote)?;
        }
        let counts = self.peers.get_mut(to.0 as usize).ok_or(BeginError::Unreachable)?;
        let (handle, place) = self.operations.slots.take_uncleared().ok_or(BeginError::Full)?;
        *place = state;
        counts.operations = counts.operations.saturating_add(1);
        self.registry.hold(Handle::from_bits(state.registration));
        if state.len() == 0 {
            self.complete_or_restart(handle.slot());
        } else if self.operations.unsent.is_empty() {
            self.send_requests_of(routes, handle.slot());
        } else {
            self.operations.needs_retry = true;
            self.queue(handle.slot()); // after the operations that wait already
        }
        Ok(Operation(handle))
    }

    /// Checks that local memory is registered with the right that the operation needs.
    fn check_local(&self, registration: Option<Registration>, state: &OperationState) -> Result<(), BeginError> {
        let Some(registration) = registration else { return Ok(()) };
        let region = self.registry.get(registration.0).ok_or(BeginError::NotRegistered)?;
        if state.local.is_empty() {
            return Ok(()); // an atomic has no local memory: its completion brings the result
        }
        let may_write = Access::from_bits_retain(region.access).contains(Access::LOCAL_WRITE);
        let lies_within = match (region.memory.as_run(), state.local.as_run()) {
            (Some((base, len)), Some((at, bytes))) => {
                let from = at.addr().wrapping_sub(base.addr());
                from <= len && bytes <= len - from
            }
            _ => false,
        };
        if lies_within && (may_write || state.kind == Kind::Put) { Ok(()) } else { Err(BeginError::NotRegistered) }
    }

    /// The next operation that has ended, with its result. Each end is reported once.
    pub fn next_finished(&mut self) -> Option<Finished> {
        let slot = self.operations.completed.pop()?;
        let handle = self.operations.slots.handle(slot)?;
        let state = self.operations.slots.free(handle)?;
        self.registry.release(Handle::from_bits(state.registration));
        if let Some(counts) = self.peers.get_mut(state.peer as usize) {
            counts.operations = counts.operations.saturating_sub(1);
        }
        Some(Finished { operation: Operation(handle), result: state.result() })
    }

    /// A rail has read the body of a request in place.
    pub fn on_sent(&mut self, cookie: Cookie) {
        self.on_rail_done(Handle::from_bits(cookie.0 & !RMA_COOKIE));
    }

    /// A rail has finished with a frame of an operation: it has read the body in place, or delivered it.
    pub(super) fn on_rail_done(&mut self, handle: Handle) {
        if let Some(state) = self.operations.slots.get_mut(handle) {
            state.in_rail = state.in_rail.saturating_sub(1);
            self.complete_or_restart(handle.slot());
        }
    }

    /// Sends the requests that wait: for each operation, as many as there is room for.
    pub(super) fn send_requests(&mut self, routes: &mut impl Routes) {
        self.operations.needs_retry = false;
        for _ in 0..self.operations.unsent.len() {
            let Some(slot) = self.operations.unsent.pop() else { return };
            if let Some(state) = self.operations.slots.at_mut(slot) {
                state.is_queued = false;
                self.send_requests_of(routes, slot);
            }
        }
    }

    /// Sends requests of an operation until all are sent, or there is no room.
    fn send_requests_of(&mut self, routes: &mut impl Routes, slot: u32) {
        let Some(handle) = self.operations.slots.handle(slot) else { return };
        let Some(state) = self.operations.slots.at_mut(slot) else { return };
        let Some(counts) = self.peers.get_mut(state.peer as usize) else { return };
        while !state.is_all_requested()
            && (state.method != Method::Frames || counts.unanswered < u32::from(state.window))
        {
            let method = state.method;
            let begun = if method == Method::Frames {
                send_request(state, handle, routes)
            } else {
                device::post(state, handle, routes)
            };
            match begun {
                Ok(()) if method != Method::Frames => {
                    // `post` may have changed the method to frames: then the device did nothing.
                    self.counters.by_device = self.counters.by_device.wrapping_add((state.method == method).into());
                }
                Ok(()) => {
                    counts.contacted = true;
                    counts.unanswered = counts.unanswered.saturating_add(1);
                    state.unanswered = state.unanswered.saturating_add(1);
                }
                // If there is no route to the peer, a link comes up later, or the peer is lost, which ends the operation.
                Err(_) => {
                    self.operations.needs_retry = true;
                    break;
                }
            }
        }
        if state.is_all_requested() {
            self.complete_or_restart(slot);
        } else {
            self.queue(slot);
        }
    }

    pub(super) fn queue(&mut self, slot: u32) {
        if let Some(state) = self.operations.slots.at_mut(slot)
            && !state.is_queued
        {
            state.is_queued = true;
            self.operations.unsent.push(slot);
        }
    }

    /// Queues an operation for its report if it has ended, or restarts it in frames if its exposed bytes could not be read. It
    /// has to be called after each change of an operation's state.
    pub(super) fn complete_or_restart(&mut self, slot: u32) {
        let Some(state) = self.operations.slots.at_mut(slot) else { return };
        if state.has_ended() && !state.is_completed {
            state.is_completed = true;
            self.operations.completed.push(slot);
        } else if state.restart_in_frames() {
            self.operations.needs_retry = true;
            self.queue(slot);
        }
    }

    /// Takes in an answer.
    pub(super) fn on_answer<R: FullRail>(&mut self, rail: &mut R, from: Option<Endpoint>, frame: &Frame) {
        let Ok((answer, _)) = Answer::read_from_prefix(frame.head()) else {
            return self.drop_malformed(rail, frame);
        };
        let handle = Handle::from_bits(answer.id.get());
        let state = self.operations.slots.get_mut(handle);
        let Some(state) = state.filter(|state| state.peer == frame.from.0 && state.expects_answer()) else {
            self.counters.stale = self.counters.stale.wrapping_add(1);
            return release(rail, frame);
        };
        if answer.last != 0 && state.unanswered != 0 {
            state.unanswered -= 1;
            if let Some(counts) = self.peers.get_mut(frame.from.0 as usize) {
                counts.unanswered = counts.unanswered.saturating_sub(1);
            }
            // An operation that waits for the window may send a request now.
            self.operations.needs_retry |= !self.operations.unsent.is_empty();
        }
        let mut is_delivered = false;
        if answer.status == NOT_READ && state.kind == Kind::Put && !state.frames_only && answer.len.get() != 0 {
            state.unread = state.unread.saturating_add(answer.len.get().into());
        } else if answer.status != 0 {
            (state.status, state.denied) = (Status::Denied, answer.status);
        } else if answer.kind == EXPOSED {
            self.on_exposed_data(rail, from, frame, &answer, handle);
        } else if answer.kind == DATA {
            is_delivered = self.on_data(rail, frame, &answer, handle);
        } else if state.kind == Kind::Atomic {
            (state.done, state.value) = (ATOMIC_LEN, answer.value.get());
        } else {
            state.done = state.done.saturating_add(answer.len.get().into());
        }
        if !is_delivered {
            release(rail, frame);
        }
        self.complete_or_restart(handle.slot());
    }

    /// Reads the data of a get from the target's memory, if the answer fits the request.
    fn on_exposed_data<R: FullRail>(
        &mut self,
        rail: &mut R,
        from: Option<Endpoint>,
        frame: &Frame,
        answer: &Answer,
        handle: Handle,
    ) {
        let Some(state) = self.operations.slots.get_mut(handle) else { return };
        let sink = state.local.window(answer.value.get(), answer.len.get().into());
        // A remote buffer has to be the only answer to its request, so it has at most as many bytes as a request can ask for.
        let fits = sink.len() == u64::from(answer.len.get()) && !sink.is_empty() && sink.len() <= MAX_EXPOSED;
        let is_requested = state.kind == Kind::Get && !state.frames_only && answer.last != 0;
        if state.status != Status::Active {
            return;
        }
        if !fits || !is_requested {
            self.counters.malformed = self.counters.malformed.wrapping_add(1);
            return;
        }
        // SAFETY: the caller of `begin` vouches for the memory of the get until it is finished.
        let is_read = unsafe { self.read_exposed(rail, from, remote_buffer_of(frame, ANSWER), sink) };
        if let Some(state) = self.operations.slots.get_mut(handle) {
            let count = if is_read { &mut state.done } else { &mut state.unread };
            *count = count.saturating_add(sink.len());
        }
    }

    /// Has the rail deliver the data of a get, if the answer fits the request. Returns `true` if the delivery releases the
    /// frame; otherwise the caller has to release it.
    fn on_data<R: FullRail>(&mut self, rail: &mut R, frame: &Frame, answer: &Answer, handle: Handle) -> bool {
        let Some(state) = self.operations.slots.get_mut(handle) else { return false };
        let body = (frame.len as usize).saturating_sub(ANSWER) as u64;
        let sink = state.local.window(answer.value.get(), body);
        if state.status != Status::Active {
            return false;
        }
        if state.kind != Kind::Get || sink.len() != body {
            self.counters.malformed = self.counters.malformed.wrapping_add(1);
            return false;
        }
        state.done = state.done.saturating_add(body);
        state.in_rail = state.in_rail.saturating_add(1);
        // SAFETY: the caller of `begin` vouches for the memory of the get until the get is finished. It is not finished while
        // `in_rail` counts this frame, unless the peer is forgotten, and then the rail is done with the memory.
        if unsafe { deliver(rail, frame, ANSWER, sink, Cookie(handle.to_bits() | RMA_COOKIE)) } == Delivery::Done {
            state.in_rail = state.in_rail.saturating_sub(1);
        }
        true
    }

    pub(super) fn fail_all(&mut self, peer: Peer, failure: Failure) {
        self.fail(peer, failure, |_| true);
    }

    /// Ends the operations on a peer's memory for which `which` returns `true`.
    pub(super) fn fail(&mut self, peer: Peer, failure: Failure, which: impl Fn(&OperationState) -> bool) {
        for slot in 0..self.operations.slots.touched() {
            let Some(state) = self.operations.slots.at_mut(slot).filter(|state| state.peer == peer.0) else { continue };
            if !state.is_completed && which(state) {
                state.status = if failure == Failure::Removed { Status::Removed } else { Status::Lost };
                (state.unanswered, state.in_rail, state.in_device, state.is_queued) = (0, 0, 0, false);
                self.complete_or_restart(slot);
            }
        }
        let Operations { slots, unsent, .. } = &mut self.operations;
        unsent.retain(|slot| slots.at(slot).is_some_and(|state| state.is_queued));
    }
}

/// The state of a new operation, without its registration and its method.
fn new_state(to: Peer, what: Transfer, remote: &RemoteMemory, offset: u64) -> Result<OperationState, BeginError> {
    let mut state = OperationState {
        peer: to.0,
        remote: remote.handle(),
        offset,
        window: remote.window().max(1),
        word_offset: remote.base().wrapping_add(offset) & 7,
        is_big_endian: remote.is_big_endian(),
        ..OperationState::new_zeroed()
    };
    let mut bytes = 0;
    (state.kind, state.local) = match what {
        Transfer::Put(local) => (Kind::Put, local),
        Transfer::Get(local) => (Kind::Get, local),
        Transfer::Atomic(atomic, flags) => {
            bytes = flags.word_bytes();
            let (op_code, operand, compare) = atomic.parts();
            (state.op_code, state.operand, state.compare) = (op_code, operand, compare.to_le_bytes());
            state.flags = flags.bits() as u8;
            if !atomic.takes(flags) || remote.base().wrapping_add(offset) & (bytes - 1) != 0 {
                return Err(BeginError::NotAvailable);
            }
            (Kind::Atomic, Span::EMPTY)
        }
    };
    let end = offset.checked_add(bytes.max(state.local.len())).ok_or(BeginError::OutOfBounds)?;
    if end > remote.len() { Err(BeginError::OutOfBounds) } else { Ok(state) }
}

/// Sends the next request of an operation.
fn send_request(state: &mut OperationState, handle: Handle, routes: &mut impl Routes) -> Result<(), SendError> {
    let Route { rail, endpoint, eager, longest, .. } = routes.route(Peer(state.peer)).ok_or(SendError::Unreachable)?;
    let longest = longest.max(eager);
    // The header of the answer is shorter, so data of this length fits into its frame, too.
    let in_frame = state.local.window(state.requested, longest.saturating_sub(REQUEST as u32).into());
    let exposed: RemoteBuffer;
    let (kind, operand, piece, body) = match state.kind {
        Kind::Put => match state.expose(rail, endpoint, in_frame.len()) {
            Some((piece, buffer)) => {
                exposed = buffer;
                (PUT_EXPOSED, 0, piece, Span::of(&exposed.0))
            }
            None => (PUT, 0, in_frame, in_frame),
        },
        Kind::Get => match state.exposed_piece(rail.read_limit(endpoint), in_frame.len()) {
            Some(piece) => (GET_EXPOSED, state.requested, piece, Span::EMPTY),
            None => (GET, state.requested, in_frame, Span::EMPTY),
        },
        Kind::Atomic if state.op_code == 0 => (ATOMIC, state.operand, Span::EMPTY, Span::of(&state.compare)),
        Kind::Atomic => (ATOMIC, state.operand, Span::EMPTY, Span::EMPTY),
    };
    let header = Request {
        kind,
        operation: state.op_code,
        flags: state.flags,
        reserved: 0,
        len: (piece.len() as u32).into(),
        id: handle.to_bits().into(),
        memory: state.remote.into(),
        offset: state.offset.wrapping_add(state.requested).into(),
        operand: operand.into(),
    };
    let len = (REQUEST as u32).saturating_add(body.len() as u32);
    let lane = if len <= eager { Lane::Eager } else { Lane::Bulk };
    let shape = Shape { tag: tags::BTL_BASE, lane, header: REQUEST as u8, len };
    let cookie = Cookie(handle.to_bits() | RMA_COOKIE);
    // SAFETY: the caller of `begin` vouches for the memory of a put until the put is finished. It is not finished before
    // `Sent`, unless the peer is forgotten, and then the rail is done with the memory. The word to compare with and a remote
    // buffer are short, so rails copy them.
    let sent = unsafe { rail.send(endpoint, shape, header.as_bytes(), body, cookie) }?;
    if sent == Sent::InPlace {
        state.in_rail = state.in_rail.saturating_add(1);
    }
    state.requested = state.requested.saturating_add(piece.len().max(u64::from(state.kind == Kind::Atomic)));
    Ok(())
}
