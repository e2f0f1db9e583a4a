//! What an initiator does: operations are begun, their requests sent, and the answers that come back taken in.

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::arrival::{deliver, loan_of, release};
use super::device;
use super::engine::Rma;
use super::errors::{BeginError, Failure};
use super::frames::{ANSWER, ATOMIC, Answer, DATA, GET, GET_LENT, LENT, PUT, PUT_LENT, REQUEST, Request, UNFETCHED};
use super::handle::RemoteMemory;
use super::operation::{ATOMIC_LEN, By, Fate, Finished, Kind, Operation, OperationState, Operations, Transfer};
use super::registry::Registration;
use super::ways::{COOKIE, MOST_EXPOSED, Way, Ways};
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
    /// against it, and not deregistered before the operation is over.
    ///
    /// # Safety
    /// Local memory is readable and unchanging for a put, writable and nobody else's for a get, until the operation is
    /// [`finished`](Self::next_finished).
    pub unsafe fn begin(
        &mut self,
        ways: &mut impl Ways,
        to: Peer,
        what: Transfer,
        registration: Option<Registration>,
        remote: &RemoteMemory,
        offset: u64,
    ) -> Result<Operation, BeginError> {
        let mut state = OperationState {
            peer: to.0,
            remote: remote.handle(),
            offset,
            window: remote.window().max(1),
            registration: registration.map_or(0, |registration| registration.0.to_bits()),
            ..OperationState::new_zeroed()
        };
        let mut bytes = 0;
        (state.kind, state.local) = match what {
            Transfer::Put(local) => (Kind::Put, local),
            Transfer::Get(local) => (Kind::Get, local),
            Transfer::Atomic(atomic, flags) => {
                bytes = flags.word_bytes();
                let (which, operand, compare) = atomic.parts();
                (state.which, state.operand, state.compare) = (which, operand, compare.to_le_bytes());
                state.flags = flags.bits() as u8;
                if !atomic.takes(flags) || remote.base().wrapping_add(offset) & (bytes - 1) != 0 {
                    return Err(BeginError::NotAvailable);
                }
                (Kind::Atomic, Span::EMPTY)
            }
        };
        let end = offset.checked_add(bytes.max(state.local.len())).ok_or(BeginError::OutOfBounds)?;
        if end > remote.len() {
            return Err(BeginError::OutOfBounds);
        }
        self.check_local(registration, &state)?;
        let native = registration.and_then(|registration| self.registry.get(registration.0)?.native());
        (state.region, state.has_region) = native.map_or((Region(0), false), |native| (native.region, true));
        state.within = remote.base().wrapping_add(offset) & 7;
        state.is_big_endian = remote.is_big_endian();
        if let Some(way) = ways.device(to) {
            state.choose(&way.one_sided, remote)?;
        }
        let account = self.accounts.get_mut(to.0 as usize).ok_or(BeginError::Unreachable)?;
        let (handle, place) = self.operations.slots.take_used().ok_or(BeginError::Full)?;
        *place = state;
        account.operations = account.operations.saturating_add(1);
        self.registry.hold(Handle::from_bits(state.registration));
        if state.len() == 0 {
            self.settle(handle.slot());
        } else if self.operations.asking.is_empty() {
            self.ask(ways, handle.slot());
        } else {
            self.operations.wants_room = true;
            self.queue(handle.slot()); // behind those that came before it
        }
        Ok(Operation(handle))
    }

    /// Whether local memory is registered for what the operation does to it.
    fn check_local(&self, registration: Option<Registration>, state: &OperationState) -> Result<(), BeginError> {
        let Some(registration) = registration else { return Ok(()) };
        let region = self.registry.get(registration.0).ok_or(BeginError::NotRegistered)?;
        if state.local.is_empty() {
            return Ok(()); // an atomic tells its result with its completion
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

    /// An operation that is over, to be told to whom it belongs; each once.
    pub fn next_finished(&mut self) -> Option<Finished> {
        let slot = self.operations.over.pop()?;
        let handle = self.operations.slots.handle(slot)?;
        let state = self.operations.slots.free(handle)?;
        self.registry.let_go(Handle::from_bits(state.registration));
        if let Some(account) = self.accounts.get_mut(state.peer as usize) {
            account.operations = account.operations.saturating_sub(1);
        }
        Some(Finished { operation: Operation(handle), result: state.result() })
    }

    /// A rail has read what it was given in place.
    pub fn sent(&mut self, cookie: Cookie) {
        self.rail_is_done(Handle::from_bits(cookie.0 & !COOKIE));
    }

    /// Data that was coming in is there.
    pub(super) fn data_is_in(&mut self, handle: Handle) {
        self.rail_is_done(handle);
    }

    fn rail_is_done(&mut self, handle: Handle) {
        if let Some(state) = self.operations.slots.get_mut(handle) {
            state.in_rail = state.in_rail.saturating_sub(1);
            self.settle(handle.slot());
        }
    }

    /// Sends what waits, each operation as far as it gets.
    pub(super) fn send_requests(&mut self, ways: &mut impl Ways) {
        self.operations.wants_room = false;
        for _ in 0..self.operations.asking.len() {
            let Some(slot) = self.operations.asking.pop() else { return };
            if let Some(state) = self.operations.slots.at_mut(slot) {
                state.is_asking = false;
                self.ask(ways, slot);
            }
        }
    }

    /// Sends requests of an operation until all are sent, or there is no room.
    fn ask(&mut self, ways: &mut impl Ways, slot: u32) {
        let Some(handle) = self.operations.slots.handle(slot) else { return };
        let Some(state) = self.operations.slots.at_mut(slot) else { return };
        let Some(account) = self.accounts.get_mut(state.peer as usize) else { return };
        while !state.is_all_asked() && (state.by != By::Frames || account.unanswered < u32::from(state.window)) {
            let by = state.by;
            let begun = if by == By::Frames { send(state, handle, ways) } else { device::perform(state, handle, ways) };
            match begun {
                Ok(()) if by != By::Frames => {
                    // Unless it goes on by frames.
                    self.counters.by_device = self.counters.by_device.wrapping_add((state.by == by).into());
                }
                Ok(()) => {
                    account.met = true;
                    account.unanswered = account.unanswered.saturating_add(1);
                    state.unanswered = state.unanswered.saturating_add(1);
                }
                // Without a way there the peer is lost or about to be, which ends this.
                Err(_) => {
                    self.operations.wants_room = true;
                    break;
                }
            }
        }
        if state.is_all_asked() {
            self.settle(slot);
        } else {
            self.queue(slot);
        }
    }

    pub(super) fn queue(&mut self, slot: u32) {
        if let Some(state) = self.operations.slots.at_mut(slot)
            && !state.is_asking
        {
            state.is_asking = true;
            self.operations.asking.push(slot);
        }
    }

    /// Puts an operation in the queue of those to be told, if it has come to its end.
    pub(super) fn settle(&mut self, slot: u32) {
        let Some(state) = self.operations.slots.at_mut(slot) else { return };
        if state.has_ended() && !state.is_over {
            state.is_over = true;
            self.operations.over.push(slot);
        } else if state.begins_again() {
            self.operations.wants_room = true;
            self.queue(slot);
        }
    }

    pub(super) fn take_answer<R: FullRail>(&mut self, rail: &mut R, from: Option<Endpoint>, frame: &Frame) {
        let Ok((answer, _)) = Answer::read_from_prefix(frame.head()) else {
            return self.drop_malformed(rail, frame);
        };
        let handle = Handle::from_bits(answer.id.get());
        let state = self.operations.slots.get_mut(handle);
        let Some(state) = state.filter(|state| state.peer == frame.from.0 && state.awaits()) else {
            self.counters.stale = self.counters.stale.wrapping_add(1);
            return release(rail, frame);
        };
        if answer.last != 0 && state.unanswered != 0 {
            state.unanswered -= 1;
            if let Some(account) = self.accounts.get_mut(frame.from.0 as usize) {
                account.unanswered = account.unanswered.saturating_sub(1);
            }
            self.operations.wants_room |= !self.operations.asking.is_empty(); // one may ask for more
        }
        let body = (frame.len as usize).saturating_sub(ANSWER) as u64;
        let mut is_taken = frame.is_whole();
        if answer.status == UNFETCHED && state.kind == Kind::Put && !state.is_copied && answer.len.get() != 0 {
            state.void = state.void.saturating_add(answer.len.get().into());
        } else if answer.status != 0 {
            (state.fate, state.denied) = (Fate::Denied, answer.status);
        } else if answer.kind == LENT {
            let sink = state.local.window(answer.value.get(), answer.len.get().into());
            // As asked for: each loan answers a request, and is no longer than one.
            let fits = sink.len() == u64::from(answer.len.get()) && !sink.is_empty() && sink.len() <= MOST_EXPOSED;
            let is_asked_for = state.kind == Kind::Get && !state.is_copied && answer.last != 0;
            let is_wanted = state.fate == Fate::Open && fits && is_asked_for;
            let loan = loan_of(frame, ANSWER);
            if is_wanted {
                // SAFETY: who began the get vouches for its memory until it is finished.
                let is_there = unsafe { self.read_exposed(rail, from, loan, sink) };
                let Some(state) = self.operations.slots.get_mut(handle) else { return };
                let count = if is_there { &mut state.done } else { &mut state.void };
                *count = count.saturating_add(sink.len());
            } else {
                self.counters.malformed = self.counters.malformed.wrapping_add((state.fate == Fate::Open).into());
            }
        } else if answer.kind == DATA {
            let sink = state.local.window(answer.value.get(), body);
            if state.kind == Kind::Get && sink.len() == body && state.fate == Fate::Open {
                state.done = state.done.saturating_add(body);
                state.in_rail = state.in_rail.saturating_add(1);
                is_taken = true;
                // SAFETY: who began the get vouches for its memory until it is finished, which it is not while `in_rail` counts
                // this frame, or the peer is forgotten, when the rail is done with it.
                if unsafe { deliver(rail, frame, ANSWER, sink, Cookie(handle.to_bits() | COOKIE)) } == Delivery::Done {
                    state.in_rail = state.in_rail.saturating_sub(1);
                }
            } else if state.fate == Fate::Open {
                self.counters.malformed = self.counters.malformed.wrapping_add(1);
            }
        } else if state.kind == Kind::Atomic {
            (state.done, state.value) = (ATOMIC_LEN, answer.value.get());
        } else {
            state.done = state.done.saturating_add(answer.len.get().into());
        }
        if !is_taken {
            rail.release(frame.id);
        }
        self.settle(handle.slot());
    }

    pub(super) fn fail_all(&mut self, peer: Peer, failure: Failure) {
        self.fail(peer, failure, |_| true);
    }

    /// Ends those operations on a peer's memory.
    pub(super) fn fail(&mut self, peer: Peer, failure: Failure, which: impl Fn(&OperationState) -> bool) {
        for slot in 0..self.operations.slots.touched() {
            let Some(state) = self.operations.slots.at_mut(slot).filter(|state| state.peer == peer.0) else { continue };
            if !state.is_over && which(state) {
                state.fate = if failure == Failure::Removed { Fate::Removed } else { Fate::Lost };
                (state.unanswered, state.in_rail, state.in_device, state.is_asking) = (0, 0, 0, false);
                self.settle(slot);
            }
        }
        let Operations { slots, asking, .. } = &mut self.operations;
        asking.retain(|slot| slots.at(slot).is_some_and(|state| state.is_asking));
    }
}

/// Sends the next request of an operation.
fn send(state: &mut OperationState, handle: Handle, ways: &mut impl Ways) -> Result<(), SendError> {
    let Way { rail, endpoint, eager, longest, .. } = ways.way(Peer(state.peer)).ok_or(SendError::Unreachable)?;
    let longest = longest.max(eager);
    // What comes back has a shorter header.
    let in_frame = state.local.window(state.asked, longest.saturating_sub(REQUEST as u32).into());
    let lent: RemoteBuffer;
    let (kind, operand, piece, body) = match state.kind {
        Kind::Put => match state.expose(rail, endpoint, in_frame.len()) {
            Some((piece, loan)) => {
                lent = loan;
                (PUT_LENT, 0, piece, Span::of(&lent.0))
            }
            None => (PUT, 0, in_frame, in_frame),
        },
        Kind::Get => match state.borrow(rail.read_limit(endpoint), in_frame.len()) {
            Some(piece) => (GET_LENT, state.asked, piece, Span::EMPTY),
            None => (GET, state.asked, in_frame, Span::EMPTY),
        },
        Kind::Atomic if state.which == 0 => (ATOMIC, state.operand, Span::EMPTY, Span::of(&state.compare)),
        Kind::Atomic => (ATOMIC, state.operand, Span::EMPTY, Span::EMPTY),
    };
    let header = Request {
        kind,
        operation: state.which,
        flags: state.flags,
        reserved: 0,
        len: (piece.len() as u32).into(),
        id: handle.to_bits().into(),
        memory: state.remote.into(),
        offset: state.offset.wrapping_add(state.asked).into(),
        operand: operand.into(),
    };
    let len = (REQUEST as u32).saturating_add(body.len() as u32);
    let lane = if len <= eager { Lane::Eager } else { Lane::Bulk };
    let shape = Shape { tag: tags::BTL_BASE, lane, header: REQUEST as u8, len };
    let cookie = Cookie(handle.to_bits() | COOKIE);
    // SAFETY: who began a put vouches for its memory until it is finished, which it is not before `Sent`, or before the peer
    // is forgotten, when the rail is done with it. The word to compare with is short, and so copied, as is a loan.
    let sent = unsafe { rail.send(endpoint, shape, header.as_bytes(), body, cookie) }?;
    if sent == Sent::InPlace {
        state.in_rail = state.in_rail.saturating_add(1);
    }
    state.asked = state.asked.saturating_add(piece.len().max(u64::from(state.kind == Kind::Atomic)));
    Ok(())
}
