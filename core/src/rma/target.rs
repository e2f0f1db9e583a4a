//! What a target does: peers' requests are taken in and done, and their answers sent.

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::answer::PendingAnswer;
use super::arrival::{deliver, loan_of, release};
use super::engine::Rma;
use super::errors::Denied;
use super::frames::{
    ANSWER, ATOMIC, Answer, DATA, DONE, GET, GET_LENT, LENT, PUT, PUT_LENT, REQUEST, Request, UNFETCHED,
};
use super::registry::Asked;
use super::ways::{COOKIE, MOST_EXPOSED, OF_ANSWER, Way, Ways};
use crate::convertor::Span;
use crate::pool::Handle;
use crate::rail::access::Access;
use crate::rail::{
    Cookie, Delivery, Endpoint, Frame, FullRail, Lane, Peer, REMOTE_BUFFER_BYTES, Rail, SendError, Shape, SingleCopy,
};
use crate::rail::{apply_atomic, tags};

impl Rma<'_> {
    pub(super) fn take_request<R: FullRail>(&mut self, rail: &mut R, from: Option<Endpoint>, frame: &Frame) {
        let Ok((request, head)) = Request::read_from_prefix(frame.head()) else {
            return self.drop_malformed(rail, frame);
        };
        let body = (frame.len as usize).saturating_sub(REQUEST);
        let makes_sense = match request.kind {
            PUT => body == request.len.get() as usize,
            PUT_LENT => loan_of(frame, REQUEST).is_some() && u64::from(request.len.get()) <= MOST_EXPOSED,
            GET | GET_LENT => body == 0,
            ATOMIC => frame.is_whole() && request.len.get() == 0,
            _ => false,
        };
        if !makes_sense {
            return self.drop_malformed(rail, frame);
        }
        let Some(handle) = self.begin_answer(frame.from, &request) else {
            self.counters.beyond_window = self.counters.beyond_window.wrapping_add(1);
            return release(rail, frame);
        };
        match request.kind {
            PUT => self.put(rail, frame, &request, handle),
            PUT_LENT => self.put_lent(rail, from, frame, &request, handle),
            GET | GET_LENT => {
                let source = self.allowed(frame.from, &request, Access::REMOTE_READ, request.len.get().into());
                match source {
                    Err(denied) => self.deny(handle, denied),
                    Ok(source) => {
                        self.hold(handle, &request);
                        self.answer(handle, |answer| answer.data = source);
                    }
                }
            }
            _ => match self.change(frame.from, &request, head.get(..body).unwrap_or(head)) {
                Err(denied) => self.deny(handle, denied),
                Ok(old) => self.answer(handle, |answer| answer.value = old),
            },
        }
    }

    /// A slot for the answer, if the peer may ask for one more.
    fn begin_answer(&mut self, from: Peer, request: &Request) -> Option<Handle> {
        let account = self.accounts.get_mut(from.0 as usize)?;
        if account.owed >= u32::from(self.window) {
            return None;
        }
        let (kind, value) = match request.kind {
            GET | GET_LENT => (DATA, request.operand.get()),
            _ => (DONE, 0),
        };
        let may_lend = request.kind == GET_LENT;
        let answer =
            PendingAnswer { peer: from.0, kind, may_lend, id: request.id.get(), value, ..PendingAnswer::new_zeroed() };
        let handle = self.answers.slots.take(answer).ok()?;
        account.owed = account.owed.saturating_add(1);
        Some(handle)
    }

    fn allowed(&self, peer: Peer, request: &Request, access: Access, len: u64) -> Result<Span, Denied> {
        self.registry.window(Asked { peer, memory: request.memory.get(), offset: request.offset.get(), len, access })
    }

    fn put<R: FullRail>(&mut self, rail: &mut R, frame: &Frame, request: &Request, handle: Handle) {
        let len = request.len.get();
        let sink = match self.allowed(frame.from, request, Access::REMOTE_WRITE, len.into()) {
            Ok(sink) => sink,
            Err(denied) => {
                release(rail, frame);
                return self.deny(handle, denied);
            }
        };
        let cookie = Cookie(handle.to_bits() | COOKIE | OF_ANSWER);
        // SAFETY: who registered the memory vouches that peers may write to it until it is deregistered, which is refused
        // as long as it is held: until the body is in, or the peer is forgotten, when the rail is done with it.
        match unsafe { deliver(rail, frame, REQUEST, sink, cookie) } {
            Delivery::Done => self.answer(handle, |answer| answer.len = len),
            Delivery::Pending => {
                self.hold(handle, request);
                if let Some(answer) = self.answers.slots.get_mut(handle) {
                    (answer.is_coming, answer.len) = (true, len);
                }
            }
        }
    }

    /// Fetches what is to be put from where it lies.
    fn put_lent<R: FullRail>(
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
        // SAFETY: who registered the memory vouches that peers may write to it, and nobody deregisters it meanwhile.
        if unsafe { self.read_exposed(rail, from, loan_of(frame, REQUEST), sink) } {
            self.answer(handle, |answer| answer.len = len);
        } else {
            self.ready(handle, |answer| (answer.status, answer.len) = (UNFETCHED, len));
        }
    }

    /// The body of a put is in.
    pub(super) fn body_is_in(&mut self, handle: Handle) {
        let coming = self.answers.slots.get(handle).filter(|answer| answer.is_coming);
        if let Some(memory) = coming.map(|answer| answer.memory) {
            self.registry.let_go(Handle::from_bits(memory));
            self.answer(handle, |answer| (answer.is_coming, answer.memory) = (false, 0));
        }
    }

    /// Memory is not deregistered without a look at this.
    fn hold(&mut self, handle: Handle, request: &Request) {
        if let Some(answer) = self.answers.slots.get_mut(handle) {
            answer.memory = request.memory.get();
            self.registry.hold(Handle::from_bits(answer.memory));
        }
    }

    /// Does an atomic; tells what the word was.
    fn change(&mut self, from: Peer, request: &Request, body: &[u8]) -> Result<u64, Denied> {
        let (atomic, flags) = request.wanted(body).ok_or(Denied::NotAvailable)?;
        let bytes = flags.word_bytes();
        let word = self.allowed(from, request, Access::REMOTE_ATOMIC, bytes)?;
        let (at, _) = word.as_contiguous().ok_or(Denied::NotAvailable)?;
        if at.addr() as u64 & (bytes - 1) != 0 || self.registry.owns_atomics(request.memory.get()) {
            return Err(Denied::NotAvailable);
        }
        // SAFETY: who registered the memory vouches for it and lets peers use atomics on it; the word lies within it, and is
        // aligned.
        Ok(unsafe { apply_atomic(at, atomic, flags) })
    }

    /// Gets whose data waits for room are denied instead: no rail has seen the memory's bytes, or needs them.
    pub(super) fn deny_what_waits(&mut self, memory: Handle) {
        let Self { answers, registry, counters, .. } = self;
        for slot in 0..answers.slots.touched() {
            let waits = |answer: &&mut PendingAnswer| answer.memory == memory.to_bits() && answer.kind == DATA;
            if let Some(answer) = answers.slots.at_mut(slot).filter(waits) {
                (answer.kind, answer.status) = (DONE, Denied::NoMemory as u8);
                (answer.memory, answer.data) = (0, Span::EMPTY);
                registry.let_go(memory);
                counters.denied = counters.denied.wrapping_add(1);
            }
        }
    }

    fn deny(&mut self, handle: Handle, denied: Denied) {
        self.counters.denied = self.counters.denied.wrapping_add(1);
        self.ready(handle, |answer| (answer.kind, answer.status) = (DONE, denied as u8));
    }

    fn answer(&mut self, handle: Handle, with: impl FnOnce(&mut PendingAnswer)) {
        self.counters.served = self.counters.served.wrapping_add(1);
        self.ready(handle, with);
    }

    fn ready(&mut self, handle: Handle, with: impl FnOnce(&mut PendingAnswer)) {
        let Some(answer) = self.answers.slots.get_mut(handle) else { return };
        with(answer);
        self.answers.ready.push(handle.slot());
    }

    /// Sends answers, each as far as there is room.
    pub(super) fn send_answers(&mut self, ways: &mut impl Ways) {
        for _ in 0..self.answers.ready.len() {
            let Some(slot) = self.answers.ready.pop() else { return };
            let Some(answer) = self.answers.slots.at_mut(slot) else { continue };
            let peer = answer.peer;
            match send(answer, ways) {
                Ok(was_lent) => {
                    if was_lent {
                        self.registry.expose(Handle::from_bits(answer.memory));
                    }
                    self.end_answer(slot, peer);
                }
                // Also without a way there: either there will be one, or the peer is forgotten.
                Err(_) => self.answers.ready.push(slot),
            }
        }
    }

    fn end_answer(&mut self, slot: u32, peer: u32) {
        if let Some(handle) = self.answers.slots.handle(slot)
            && let Some(answer) = self.answers.slots.free(handle)
        {
            self.registry.let_go(Handle::from_bits(answer.memory));
        }
        if let Some(account) = self.accounts.get_mut(peer as usize) {
            account.owed = account.owed.saturating_sub(1);
        }
    }

    pub(super) fn forget_requests(&mut self, peer: Peer) {
        let Self { answers, registry, .. } = self;
        answers.ready.retain(|slot| answers.slots.at(slot).is_some_and(|answer| answer.peer != peer.0));
        for slot in 0..answers.slots.touched() {
            if let Some(handle) = answers.slots.handle(slot)
                && let Some(answer) = answers.slots.get(handle).filter(|answer| answer.peer == peer.0)
            {
                registry.let_go(Handle::from_bits(answer.memory));
                answers.slots.free(handle);
            }
        }
    }
}

/// Sends an answer; of one with data, frame after frame until the rail is full, unless the rail lends it. Tells whether it did.
fn send(answer: &mut PendingAnswer, ways: &mut impl Ways) -> Result<bool, SendError> {
    let Way { rail, endpoint, eager, longest, .. } = ways.way(Peer(answer.peer)).ok_or(SendError::Unreachable)?;
    let room = longest.saturating_sub(ANSWER as u32);
    let loan = if answer.may_lend && answer.kind == DATA { rail.expose(endpoint, &answer.data) } else { None };
    if let Some(loan) = loan {
        let (kind, len) = (LENT, answer.data.len() as u32); // as in the request
        let header = Answer {
            kind,
            last: 1,
            len: len.into(),
            id: answer.id.into(),
            value: answer.value.into(),
            ..Answer::new_zeroed()
        };
        let len = (ANSWER + REMOTE_BUFFER_BYTES) as u32;
        let mut grant =
            rail.reserve(endpoint, Shape { tag: tags::BTL_BASE, lane: Lane::Control, header: ANSWER as u8, len })?;
        grant.write(0, header.as_bytes());
        grant.write(ANSWER, &loan.0);
        let ticket = grant.finish();
        rail.commit(ticket);
        return Ok(true);
    }
    answer.may_lend = false; // part of it leaves in frames
    loop {
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
        // Copied, and not read where it lies: others may change it before it is resent or checked.
        // SAFETY: who registered the memory vouches that it may be read until it is deregistered, when answers that wait lose
        // their data.
        unsafe { grant.gather(ANSWER, data) };
        let ticket = grant.finish();
        rail.commit(ticket);
        answer.data = rest;
        answer.value = answer.value.wrapping_add(data.len());
        if rest.is_empty() {
            return Ok(false);
        }
    }
}
