//! The target: it takes in the requests of peers, does them, and sends the answers.

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::answer::PendingAnswer;
use super::arrival::{deliver, release, remote_buffer_of};
use super::engine::Rma;
use super::errors::Denied;
use super::frames::{
    ANSWER, ATOMIC, Answer, DATA, DONE, EXPOSED, GET, GET_EXPOSED, NOT_READ, PUT, PUT_EXPOSED, REQUEST, Request,
};
use super::registry::AccessRequest;
use super::routes::{ANSWER_COOKIE, MAX_EXPOSED, RMA_COOKIE, Route, Routes};
use crate::convertor::Span;
use crate::pool::Handle;
use crate::rail::access::Access;
use crate::rail::tags;
use crate::rail::{
    Cookie, Delivery, Endpoint, Frame, FullRail, Lane, Peer, REMOTE_BUFFER_BYTES, RemoteBuffer, SendError, Shape,
    SingleCopy,
};

impl Rma<'_> {
    /// Takes in a request.
    pub(super) fn on_request<R: FullRail>(&mut self, rail: &mut R, from: Option<Endpoint>, frame: &Frame) {
        let Ok((request, head)) = Request::read_from_prefix(frame.head()) else {
            return self.drop_malformed(rail, frame);
        };
        let body = (frame.len as usize).saturating_sub(REQUEST);
        let is_valid = match request.kind {
            PUT => body == request.len.get() as usize,
            PUT_EXPOSED => remote_buffer_of(frame, REQUEST).is_some() && u64::from(request.len.get()) <= MAX_EXPOSED,
            GET | GET_EXPOSED => body == 0,
            ATOMIC => frame.is_whole() && request.len.get() == 0,
            _ => false,
        };
        if !is_valid {
            return self.drop_malformed(rail, frame);
        }
        let Some(handle) = self.reserve_answer(frame.from, &request) else {
            self.counters.window_violations = self.counters.window_violations.wrapping_add(1);
            return release(rail, frame);
        };
        let request = self.locate(frame.from, request);
        match request.kind {
            PUT => self.serve_put(rail, frame, &request, handle),
            PUT_EXPOSED => self.serve_exposed_put(rail, from, frame, &request, handle),
            GET | GET_EXPOSED => self.serve_get(frame.from, &request, handle),
            _ => match self.apply_atomic(frame.from, &request, head.get(..body).unwrap_or(head)) {
                Err(denied) => self.deny(handle, denied),
                Ok(old) => self.answer(handle, |answer| answer.value = old),
            },
        }
    }

    /// Takes a slot for the answer, if the window of the peer is not full.
    fn reserve_answer(&mut self, from: Peer, request: &Request) -> Option<Handle> {
        let counts = self.peers.get_mut(from.0 as usize)?;
        if counts.owed >= u32::from(self.window) {
            return None;
        }
        let (kind, value) = match request.kind {
            GET | GET_EXPOSED => (DATA, request.operand.get()),
            _ => (DONE, 0),
        };
        let may_expose = request.kind == GET_EXPOSED;
        let answer = PendingAnswer {
            peer: from.0,
            kind,
            may_expose,
            id: request.id.get(),
            value,
            ..PendingAnswer::new_zeroed()
        };
        let handle = self.answers.slots.take(answer).ok()?;
        counts.owed = counts.owed.saturating_add(1);
        Some(handle)
    }

    /// The request with the registration in which its memory lies, if it names none.
    fn locate(&self, peer: Peer, mut request: Request) -> Request {
        let (memory, offset) = (request.memory.get(), request.offset.get());
        let access = match request.kind {
            PUT | PUT_EXPOSED => Access::REMOTE_WRITE,
            GET | GET_EXPOSED => Access::REMOTE_READ,
            _ => Access::REMOTE_ATOMIC,
        };
        let len = request.bytes();
        let found = self.registry.locate(AccessRequest { peer, memory, offset, len, access });
        (request.memory, request.offset) = (found.memory.into(), found.offset.into());
        request
    }

    /// The memory that a request names, if the peer has the right to access it.
    fn allowed(&self, peer: Peer, request: &Request, access: Access, len: u64) -> Result<Span, Denied> {
        let (memory, offset) = (request.memory.get(), request.offset.get());
        self.registry.check_access(AccessRequest { peer, memory, offset, len, access })
    }

    fn serve_put<R: FullRail>(&mut self, rail: &mut R, frame: &Frame, request: &Request, handle: Handle) {
        let len = request.len.get();
        let sink = match self.allowed(frame.from, request, Access::REMOTE_WRITE, len.into()) {
            Ok(sink) => sink,
            Err(denied) => {
                release(rail, frame);
                return self.deny(handle, denied);
            }
        };
        let cookie = Cookie(handle.to_bits() | RMA_COOKIE | ANSWER_COOKIE);
        // SAFETY: the caller of `register` vouches that peers may write to the memory until it is deregistered. That is refused
        // while the memory is held: until the body has arrived, or until the peer is forgotten, and then the rail is done with
        // the memory.
        match unsafe { deliver(rail, frame, REQUEST, sink, cookie) } {
            Delivery::Done => self.answer(handle, |answer| answer.len = len),
            Delivery::Pending => {
                self.hold(handle, request);
                if let Some(answer) = self.answers.slots.get_mut(handle) {
                    (answer.is_arriving, answer.len) = (true, len);
                }
            }
        }
    }

    /// Reads the bytes of a put from the initiator's memory.
    fn serve_exposed_put<R: FullRail>(
        &mut self,
        rail: &mut R,
        from: Option<Endpoint>,
        frame: &Frame,
        request: &Request,
        handle: Handle,
    ) {
        let len = request.len.get();
        let sink = match self.allowed(frame.from, request, Access::REMOTE_WRITE, len.into()) {
            Ok(sink) => sink,
            Err(denied) => return self.deny(handle, denied),
        };
        // SAFETY: the caller of `register` vouches that peers may write to the memory, and nobody deregisters it meanwhile.
        if unsafe { self.read_exposed(rail, from, remote_buffer_of(frame, REQUEST), sink) } {
            self.answer(handle, |answer| answer.len = len);
        } else {
            self.queue_answer(handle, |answer| (answer.status, answer.len) = (NOT_READ, len));
        }
    }

    fn serve_get(&mut self, from: Peer, request: &Request, handle: Handle) {
        match self.allowed(from, request, Access::REMOTE_READ, request.len.get().into()) {
            Err(denied) => self.deny(handle, denied),
            Ok(source) => {
                self.hold(handle, request);
                self.answer(handle, |answer| answer.data = source);
            }
        }
    }

    /// The body of a put has arrived.
    pub(super) fn on_put_delivered(&mut self, handle: Handle) {
        let arriving = self.answers.slots.get(handle).filter(|answer| answer.is_arriving);
        if let Some(memory) = arriving.map(|answer| answer.memory) {
            self.registry.release(Handle::from_bits(memory));
            self.answer(handle, |answer| (answer.is_arriving, answer.memory) = (false, 0));
        }
    }

    /// Holds the memory of a request against deregistration until its answer is freed.
    fn hold(&mut self, handle: Handle, request: &Request) {
        if let Some(answer) = self.answers.slots.get_mut(handle) {
            answer.memory = request.memory.get();
            self.registry.hold(Handle::from_bits(answer.memory));
        }
    }

    /// Does an atomic. Returns the old value of the word.
    fn apply_atomic(&mut self, from: Peer, request: &Request, body: &[u8]) -> Result<u64, Denied> {
        let (atomic, flags) = request.atomic(body).ok_or(Denied::NotAvailable)?;
        let bytes = flags.word_bytes();
        let word = self.allowed(from, request, Access::REMOTE_ATOMIC, bytes)?;
        let (at, _) = word.as_contiguous().ok_or(Denied::NotAvailable)?;
        if at.addr() as u64 & (bytes - 1) != 0 || self.registry.owns_atomics(request.memory.get()) {
            return Err(Denied::NotAvailable);
        }
        // SAFETY: the caller of `register` vouches for the memory and lets peers use atomics on it. The word lies within it, and
        // is aligned.
        Ok(unsafe { crate::rail::apply_atomic(at, atomic, flags) })
    }

    /// Denies the gets of this memory whose data waits for room. No rail uses the bytes of the memory: data of a get is copied.
    pub(super) fn deny_queued_gets(&mut self, memory: Handle) {
        let Self { answers, registry, counters, .. } = self;
        for slot in 0..answers.slots.touched() {
            let waits = |answer: &&mut PendingAnswer| answer.memory == memory.to_bits() && answer.kind == DATA;
            if let Some(answer) = answers.slots.at_mut(slot).filter(waits) {
                (answer.kind, answer.status) = (DONE, Denied::NoMemory as u8);
                (answer.memory, answer.data) = (0, Span::EMPTY);
                registry.release(memory);
                counters.denied = counters.denied.wrapping_add(1);
            }
        }
    }

    fn deny(&mut self, handle: Handle, denied: Denied) {
        self.counters.denied = self.counters.denied.wrapping_add(1);
        self.queue_answer(handle, |answer| (answer.kind, answer.status) = (DONE, denied as u8));
    }

    /// Answers a request that was done.
    fn answer(&mut self, handle: Handle, set: impl FnOnce(&mut PendingAnswer)) {
        self.counters.served = self.counters.served.wrapping_add(1);
        self.queue_answer(handle, set);
    }

    fn queue_answer(&mut self, handle: Handle, set: impl FnOnce(&mut PendingAnswer)) {
        let Some(answer) = self.answers.slots.get_mut(handle) else { return };
        set(answer);
        self.answers.ready.push(handle.slot());
    }

    /// Sends the answers that wait: for each of them, as many frames as there is room for.
    pub(super) fn send_answers(&mut self, routes: &mut impl Routes) {
        for _ in 0..self.answers.ready.len() {
            let Some(slot) = self.answers.ready.pop() else { return };
            let Some(answer) = self.answers.slots.at_mut(slot) else { continue };
            let peer = answer.peer;
            match send_answer(answer, routes) {
                Ok(exposed) => {
                    if exposed {
                        self.registry.expose(Handle::from_bits(answer.memory));
                    }
                    self.free_answer(slot, peer);
                }
                // If there is no route to the peer, one comes up later, or the peer is forgotten.
                Err(_) => self.answers.ready.push(slot),
            }
        }
    }

    fn free_answer(&mut self, slot: u32, peer: u32) {
        if let Some(handle) = self.answers.slots.handle(slot)
            && let Some(answer) = self.answers.slots.free(handle)
        {
            self.registry.release(Handle::from_bits(answer.memory));
        }
        if let Some(counts) = self.peers.get_mut(peer as usize) {
            counts.owed = counts.owed.saturating_sub(1);
        }
    }

    pub(super) fn forget_requests(&mut self, peer: Peer) {
        let Self { answers, registry, .. } = self;
        answers.ready.retain(|slot| answers.slots.at(slot).is_some_and(|answer| answer.peer != peer.0));
        for slot in 0..answers.slots.touched() {
            if let Some(handle) = answers.slots.handle(slot)
                && let Some(answer) = answers.slots.get(handle).filter(|answer| answer.peer == peer.0)
            {
                registry.release(Handle::from_bits(answer.memory));
                answers.slots.free(handle);
            }
        }
    }
}

/// Sends an answer: as a remote buffer if the initiator takes one and the rail exposes the data, otherwise frame after frame
/// until the rail is full. Returns whether the data was exposed.
fn send_answer(answer: &mut PendingAnswer, routes: &mut impl Routes) -> Result<bool, SendError> {
    let Route { rail, endpoint, eager, longest, .. } = routes.route(Peer(answer.peer)).ok_or(SendError::Unreachable)?;
    let buffer = if answer.may_expose && answer.kind == DATA { rail.expose(endpoint, &answer.data) } else { None };
    if let Some(buffer) = buffer {
        send_exposed(answer, rail, endpoint, &buffer)?;
        return Ok(true);
    }
    answer.may_expose = false; // if a part of the data leaves in frames, the rest has to leave in frames, too
    let room = longest.saturating_sub(ANSWER as u32);
    while !send_frame(answer, rail, endpoint, eager, room)? {}
    Ok(false)
}

/// Sends the one frame of an answer whose data is exposed.
fn send_exposed<R: FullRail>(
    answer: &PendingAnswer,
    rail: &mut R,
    endpoint: Endpoint,
    buffer: &RemoteBuffer,
) -> Result<(), SendError> {
    let header = Answer {
        kind: EXPOSED,
        last: 1,
        len: (answer.data.len() as u32).into(), // the length of the request, which has 32 bits
        id: answer.id.into(),
        value: answer.value.into(),
        ..Answer::new_zeroed()
    };
    let len = (ANSWER + REMOTE_BUFFER_BYTES) as u32;
    let shape = Shape { tag: tags::BTL_BASE, lane: Lane::Control, header: ANSWER as u8, len };
    let mut grant = rail.reserve(endpoint, shape)?;
    grant.write(0, header.as_bytes());
    grant.write(ANSWER, &buffer.0);
    let ticket = grant.finish();
    rail.commit(ticket);
    Ok(())
}

/// Sends the next frame of an answer, with up to `room` bytes of its data. Returns whether it was the last frame.
fn send_frame<R: FullRail>(
    answer: &mut PendingAnswer,
    rail: &mut R,
    endpoint: Endpoint,
    eager: u32,
    room: u32,
) -> Result<bool, SendError> {
    let data = answer.data.window(0, room.into());
    let rest = answer.data.window(data.len(), u64::MAX);
    let len = (ANSWER as u32).saturating_add(data.len() as u32);
    let header = Answer {
        kind: answer.kind,
        status: answer.status,
        last: u8::from(rest.is_empty()),
        reserved: 0,
        len: if answer.kind == DATA { data.len() as u32 } else { answer.len }.into(),
        id: answer.id.into(),
        value: answer.value.into(),
    };
    let lane = match answer.kind {
        DONE => Lane::Control,
        _ if len <= eager => Lane::Eager,
        _ => Lane::Bulk,
    };
    let mut grant = rail.reserve(endpoint, Shape { tag: tags::BTL_BASE, lane, header: ANSWER as u8, len })?;
    grant.write(0, header.as_bytes());
    // The data is copied, and not read in place: others may change it before it is retransmitted or checked. SAFETY: the caller
    // of `register` vouches that the memory may be read until it is deregistered. Deregistration denies the gets that wait, and
    // takes their data away.
    unsafe { grant.gather(ANSWER, data) };
    let ticket = grant.finish();
    rail.commit(ticket);
    answer.data = rest;
    answer.value = answer.value.wrapping_add(data.len());
    Ok(rest.is_empty())
}
