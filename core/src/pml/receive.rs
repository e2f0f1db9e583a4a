//! Receives: posting, matching of what arrives, and delivery into the receiver's memory.

use super::engine::{Pml, Rails};
use super::lent::{KEPT_LOAN, loan_of};
use super::matching::{Key, Pattern};
use super::peer::Standing;
use super::request::{Outcome, Phase, RECEIVE, Request, State};
use super::send::{Refusal, request_cookie};
use super::unexpected::{Envelope, Kept, Message, SEEN, Stage, Unexpected};
use crate::convertor::Span;
use crate::pool::Handle;
use crate::ptl::{self, First};
use crate::rail::{Cookie, Delivery, Frame, Peer, Rail, SendError, Short, ShortBody};
use crate::wire::{self, Reason};

/// Set in the slot half of a cookie that names an envelope and not a request.
pub(super) const ENVELOPE_COOKIE: u64 = 1 << 31;

impl<R: Rails> Pml<'_, R> {
    /// Receives a message that `pattern` accepts into `sink`. A message that is here already is taken at once.
    ///
    /// # Errors
    /// [`Refusal`]; nothing was begun then.
    ///
    /// # Safety
    /// The memory of `sink` stays writable, and nobody else accesses it, until the outcome of the request is taken with
    /// [`test`](Self::test).
    #[inline]
    pub unsafe fn irecv(&mut self, pattern: Pattern, sink: Span) -> Result<Request, Refusal> {
        let Some((handle, state)) = self.requests.take_used() else { return Err(Refusal::Busy) };
        state.post();
        state.peer = pattern.source;
        state.context = pattern.context;
        state.tag = pattern.tag;
        state.span = sink;
        state.remote = self.posting; // `cached` and `inflight` are 0 in a free slot, the other fields are set by the match
        self.posting = self.posting.wrapping_add(1);
        let slot = handle.slot();
        if self.unusual || !self.matcher.post_alone(slot, pattern) {
            // In pieces, which fit registers: the quick way would have to write the pattern down.
            self.post(slot, pattern.context, pattern.source, pattern.tag);
        }
        Ok(Request(handle))
    }

    /// Gives a new receive a message that is here, or posts it.
    #[inline(never)]
    fn post(&mut self, slot: u32, context: u32, source: u32, tag: u32) {
        let pattern = Pattern { context, source, tag };
        if self.matcher.unexpected_len() != 0
            && let Some(envelope) = self.find_unexpected(&pattern)
        {
            self.matcher.remove_unexpected(envelope);
            return self.claim(envelope, slot);
        }
        if self.unusual && self.ends_at_once(slot, pattern.source) {
            return;
        }
        self.matcher.post(slot, pattern);
    }

    /// What a new receive needs beside its post where peers were lost or hold messages back. `true`: it is over.
    #[cold]
    fn ends_at_once(&mut self, slot: u32, source: u32) -> bool {
        if self.peers.get(source as usize).is_some_and(|peer| peer.standing == Standing::Lost) {
            self.complete(slot, Outcome::PeerFailed);
            return true;
        }
        if self.posted.may_go(&mut self.requests) {
            self.posted.insert(&mut self.requests, slot);
        } else {
            self.unusual = self.counters.lost != 0;
        }
        false
    }

    /// Takes a receive that is posted no longer out of the order of those that are, if it is there.
    #[inline]
    pub(super) fn unorder(&mut self, slot: u32) {
        if self.requests.at(slot).is_some_and(|state| state.cached != 0) {
            self.posted.remove(&mut self.requests, slot);
        }
    }

    /// Finds a message that `pattern` accepts, without taking it.
    pub fn iprobe(&mut self, pattern: Pattern) -> Option<Envelope> {
        let Some(slot) = self.find_unexpected(&pattern) else {
            self.want_probe(pattern);
            return None;
        };
        let envelope = self.envelopes.at_mut(slot)?;
        envelope.flags |= SEEN;
        Some(Envelope { peer: Peer(envelope.peer), tag: envelope.tag, len: envelope.total })
    }

    /// Takes a message that `pattern` accepts out of the queues: nobody else can receive it. `None` where none is here
    /// yet. A message that its sender holds back for want of credit takes a request, as its receive would.
    ///
    /// # Errors
    /// [`Refusal::Busy`] where such a message is here and all requests are taken: it stays.
    pub fn improbe(&mut self, pattern: Pattern) -> Result<Option<(Message, Envelope)>, Refusal> {
        let Some(slot) = self.find_unexpected(&pattern) else {
            self.want_probe(pattern);
            return Ok(None);
        };
        let (Some(handle), Some(envelope)) = (self.envelopes.handle(slot), self.envelopes.at_mut(slot)) else {
            return Ok(None);
        };
        let found = Envelope { peer: Peer(envelope.peer), tag: envelope.tag, len: envelope.total };
        if envelope.flags & wire::FLAG_ANSWER != 0 {
            return Ok(self.take_answer(handle)?.map(|request| (Message(Kept::Request(request)), found)));
        }
        envelope.stage = Stage::Taken;
        self.matcher.remove_unexpected(slot);
        Ok(Some((Message(Kept::Envelope(handle)), found)))
    }

    /// Receives a message that [`improbe`](Self::improbe) took.
    ///
    /// # Errors
    /// [`Refusal::Busy`] with the message, where all requests are taken; [`Refusal::Invalid`] for a message of another
    /// engine, or of a peer that was deleted since.
    ///
    /// # Safety
    /// As [`irecv`](Self::irecv).
    pub unsafe fn imrecv(&mut self, message: Message, sink: Span) -> Result<Request, (Refusal, Message)> {
        let kept = match message.0 {
            Kept::Envelope(envelope) => envelope,
            Kept::Request(request) => {
                let taken = self.requests.get_mut(request).filter(|state| state.phase == Phase::Taken);
                let Some(state) = taken else { return Err((Refusal::Invalid, message)) };
                let outcome = state.outcome;
                state.span = sink;
                state.wanted = state.fits();
                state.phase = Phase::Responding;
                if outcome == Outcome::Success {
                    self.respond_or_queue(request.slot());
                } else {
                    self.complete(request.slot(), outcome);
                }
                return Ok(Request(request));
            }
        };
        let taken = |envelope: &&Unexpected| matches!(envelope.stage, Stage::Taken | Stage::Broken);
        let Some(envelope) = self.envelopes.get(kept).filter(taken) else {
            return Err((Refusal::Invalid, message));
        };
        let broken = envelope.stage == Stage::Broken;
        let state = State {
            phase: Phase::Posted,
            flags: RECEIVE,
            peer: envelope.peer,
            context: envelope.context,
            tag: envelope.tag,
            span: sink,
            ..zerocopy::FromZeros::new_zeroed()
        };
        let Ok(handle) = self.requests.take(state) else { return Err((Refusal::Busy, message)) };
        if broken {
            self.give_back(kept, false);
            self.complete(handle.slot(), Outcome::PeerFailed);
        } else {
            self.claim(kept.slot(), handle.slot());
        }
        Ok(Request(handle))
    }

    /// Cancels a receive that has not matched: its outcome is then `Cancelled`. Tells whether it was; anything else goes
    /// on as if nothing was said, sends among it (CONTRACTS M14).
    pub fn cancel(&mut self, request: Request) -> bool {
        let posted = self.requests.get(request.0).is_some_and(|state| state.phase == Phase::Posted);
        let cancelled = posted && self.matcher.unpost(request.0.slot());
        if cancelled {
            self.complete(request.0.slot(), Outcome::Cancelled);
        }
        cancelled
    }

    /// Forgets all messages of a context that nobody received; their senders are told. Posted receives of it are
    /// cancelled.
    pub fn purge(&mut self, context: u32) {
        for slot in 0..self.envelopes.touched() {
            let queued = |e: &Unexpected| e.stage == Stage::Queued && e.context == context;
            if self.envelopes.at(slot).is_some_and(queued) && self.matcher.remove_unexpected(slot) {
                self.refuse(slot, Reason::NoCommunicator);
            }
        }
        for slot in 0..self.requests.touched() {
            let posted = |state: &State| state.phase == Phase::Posted && state.context == context;
            if self.requests.at(slot).is_some_and(posted) && self.matcher.unpost(slot) {
                self.complete(slot, Outcome::Cancelled);
            }
        }
    }

    /// The quick way of a short message: whole in its frame, in its turn, for a receive that is posted. `false` where
    /// anything is different, and nothing has been done then.
    #[inline(always)]
    pub(super) fn arrive_at_once(&mut self, short: &Short) -> bool {
        let Some(header) = ptl::short_message(short.header) else { return false };
        let Some(peer) = self.peers.get_mut(short.from.0 as usize) else { return false };
        if header.sequence != peer.next_in || !peer.orderly {
            return false;
        }
        let key = Key { context: header.context, source: short.from.0, tag: header.tag };
        if let Some(slot) = self.matcher.lone_slot(&key)
            && let Some(state) = self.requests.in_use_mut(slot)
            && state.is_plain()
            && peer.may_owe(self.credit_slack)
        {
            self.matcher.take_lone();
            self.counters.expected = self.counters.expected.wrapping_add(1);
            // SAFETY: the caller of `irecv` vouches for the sink until the request is done; the rail was not called since.
            unsafe { state.receive(short.from, header.tag, short.body) };
            state.succeed();
            peer.took_message(short.body.len() != 0);
            if header.credit != 0 {
                peer.gain(header.credit as u16, (header.credit >> 16) as u16);
                if !peer.held.is_empty() {
                    self.put_to_work(short.from.0);
                }
            }
            return true;
        }
        let match_bits = u64::from(header.context) << 32 | u64::from(header.tag);
        self.arrive_among_others(short.from, match_bits, header.credit, short.body)
    }

    /// The same, where there is more to it: the receive is not the only one, or is awaited, or credit is to be given back.
    /// `match_bits`: context and tag.
    #[inline(never)]
    fn arrive_among_others(&mut self, from: Peer, match_bits: u64, credit: u32, body: ShortBody) -> bool {
        let key = Key { context: (match_bits >> 32) as u32, source: from.0, tag: match_bits as u32 };
        let Some(slot) = self.matcher.take_posted(&key) else { return false };
        let Some(state) = self.requests.in_use_mut(slot) else { return false };
        let Some(peer) = self.peers.get_mut(from.0 as usize) else { return false };
        self.counters.expected = self.counters.expected.wrapping_add(1);
        // SAFETY: as in `arrive_at_once`.
        unsafe { state.receive(from, key.tag, body) };
        peer.took_message(body.len() != 0);
        let mut work = peer.comes_due(self.credit_slack);
        if credit != 0 {
            peer.gain(credit as u16, (credit >> 16) as u16);
            work |= !peer.held.is_empty();
        }
        if state.is_plain() {
            state.succeed();
        } else {
            self.complete(slot, Outcome::Success);
        }
        if work {
            self.put_to_work(from.0);
        }
        true
    }

    /// A first fragment in its turn: to its receive, or kept until there is one. Tells whether it matched.
    #[inline]
    pub(super) fn arrive(&mut self, rail: usize, frame: &Frame, first: First) -> bool {
        let key = Key { context: first.context, source: frame.from.0, tag: first.tag };
        if let Some(slot) = self.matcher.take_posted(&key) {
            self.counters.expected = self.counters.expected.wrapping_add(1);
            self.start(slot, rail, frame, first);
            return true;
        }
        if let Some(slot) = self.keep(rail, frame, first, Stage::Queued) {
            self.counters.unexpected = self.counters.unexpected.wrapping_add(1);
            self.enqueue(slot);
        }
        false
    }

    /// Delivers a first fragment to the receive that it matched.
    #[inline]
    fn start(&mut self, slot: u32, rail: usize, frame: &Frame, first: First) {
        let body = u64::from(frame.len).saturating_sub(u64::from(first.header));
        if first.flags & wire::FLAG_ANSWER == 0 {
            self.owe(frame.from.0, body != 0);
        }
        let Some(handle) = self.requests.handle(slot) else { return self.drop_frame(rail, frame) };
        let Some(state) = self.requests.at_mut(slot) else { return self.drop_frame(rail, frame) };
        state.peer = frame.from.0;
        state.tag = first.tag;
        state.total = first.total;
        state.wanted = state.fits();
        state.moved = body;
        state.remote = first.sender;
        if first.flags & wire::FLAG_LENT != 0 {
            state.phase = Phase::Responding;
            self.read_exposed(slot, rail, &loan_of(frame));
            return self.respond_or_queue(slot);
        }
        if frame.is_whole() {
            let bytes = frame.head().get(first.header as usize..).unwrap_or_default();
            // SAFETY: the caller of `irecv` vouches for the sink until the request is done; the frame is a copy of ours.
            unsafe { state.span.unpack(bytes.as_ptr(), bytes.len()) };
        } else if let Some(rail) = self.rails.rail_mut(rail) {
            // SAFETY: as above; while the delivery is pending `inflight` keeps the request from being done.
            let delivery = unsafe { rail.deliver(frame.id, first.header as usize, state.span, request_cookie(handle)) };
            if delivery == Delivery::Pending {
                state.inflight = 1;
            }
        }
        if first.rendezvous {
            state.phase = Phase::Responding;
            self.respond_or_queue(slot);
        } else if state.inflight == 0 {
            self.complete(slot, Outcome::Success);
        } else {
            state.phase = Phase::Receiving;
            self.unorder(slot);
        }
    }

    /// Takes an envelope for a first fragment, and a unit for its payload. `None` where the sender has gone beyond its
    /// credit: the frame is dropped.
    pub(super) fn keep(&mut self, rail: usize, frame: &Frame, first: First, stage: Stage) -> Option<u32> {
        let body = frame.len.wrapping_sub(u32::from(first.header));
        let answer = first.flags & wire::FLAG_ANSWER != 0;
        // Each peer has its share and no more, or one that ignores its credit would take the others' away. Envelopes
        // beyond all credit are for answers alone, which bring no payload.
        let quota = self.config.quota();
        let room = self.peers.get(frame.from.0 as usize).is_some_and(|peer| match answer {
            true => body == 0,
            false => peer.kept_envelopes < quota.0 && (body == 0 || peer.kept_units < quota.1),
        });
        let lent = first.flags & wire::FLAG_LENT != 0;
        if !room || body > self.unit_bytes || (lent && self.unit_bytes < KEPT_LOAN) {
            return self.trespass(rail, frame);
        }
        let unit = if body == 0 {
            Handle::NONE
        } else {
            match self.units.take(()) {
                Ok(unit) => unit,
                Err(_) => return self.trespass(rail, frame),
            }
        };
        let envelope = Unexpected {
            stage,
            filling: false,
            rendezvous: first.rendezvous,
            flags: first.flags & (wire::FLAG_READY | wire::FLAG_ANSWER | wire::FLAG_LENT),
            peer: frame.from.0,
            context: first.context,
            tag: first.tag,
            unit: if body == 0 { 0 } else { unit.slot().wrapping_add(1) },
            body,
            next: 0,
            sequence: first.sequence,
            total: first.total,
            sender: first.sender,
        };
        let Ok(handle) = self.envelopes.take(envelope) else {
            self.units.free(unit);
            return self.trespass(rail, frame);
        };
        if !answer && let Some(peer) = self.peers.get_mut(frame.from.0 as usize) {
            peer.kept_envelopes = peer.kept_envelopes.saturating_add(1);
            peer.kept_units = peer.kept_units.saturating_add(u16::from(body != 0));
        }
        let place = self.unit_span(unit.slot(), body);
        if lent {
            let loan = loan_of(frame);
            if !self.take_in(handle, rail, first, &loan) {
                self.keep_loan(unit.slot(), rail, &loan);
            }
        } else if frame.is_whole() {
            let bytes = frame.head().get(first.header as usize..).unwrap_or_default();
            // SAFETY: the unit is ours and nobody else's until it is freed.
            unsafe { place.unpack(bytes.as_ptr(), bytes.len()) };
        } else if let Some(rail) = self.rails.rail_mut(rail) {
            let cookie = Cookie(handle.to_bits() | ENVELOPE_COOKIE);
            // SAFETY: as above; while the delivery is pending `filling` keeps the unit from being freed.
            let delivery = unsafe { rail.deliver(frame.id, first.header as usize, place, cookie) };
            if delivery == Delivery::Pending
                && let Some(envelope) = self.envelopes.get_mut(handle)
            {
                envelope.filling = true;
            }
        }
        Some(handle.slot())
    }

    /// Puts a kept message into the matcher, or refuses it where its sender wants it matched now or never.
    fn enqueue(&mut self, slot: u32) {
        let Some(envelope) = self.envelopes.at_mut(slot) else { return };
        if envelope.flags & wire::FLAG_READY != 0 {
            return self.refuse(slot, Reason::NotReady);
        }
        envelope.stage = Stage::Queued;
        let key = Key { context: envelope.context, source: envelope.peer, tag: envelope.tag };
        self.matcher.add_unexpected(slot, key);
    }

    /// Keeps a first fragment whose turn has not come.
    pub(super) fn park(&mut self, rail: usize, frame: &Frame, first: First) {
        let Some(slot) = self.keep(rail, frame, first, Stage::Parked) else { return };
        self.counters.parked = self.counters.parked.wrapping_add(1);
        let Some(peer) = self.peers.get_mut(frame.from.0 as usize) else { return };
        // In order of number, counted from the one that is due; the list is as short as rails are apart.
        let (sequence, due) = (first.sequence, peer.next_in);
        let (mut before, mut next) = (None, peer.parked);
        while let Some(other) = next.checked_sub(1).and_then(|other| self.envelopes.at(other)) {
            if other.sequence.wrapping_sub(due) >= sequence.wrapping_sub(due) {
                break;
            }
            (before, next) = (Some(next.wrapping_sub(1)), other.next);
        }
        if let Some(envelope) = self.envelopes.at_mut(slot) {
            envelope.sequence = sequence;
            envelope.next = next;
        }
        let link = slot.wrapping_add(1);
        match before.and_then(|before| self.envelopes.at_mut(before)) {
            Some(before) => before.next = link,
            None => peer.parked = link,
        }
        peer.orderly = false;
    }

    /// Takes parked messages whose turn has come.
    pub(super) fn unpark(&mut self, from: u32) {
        loop {
            let Some(peer) = self.peers.get_mut(from as usize) else { return };
            let Some(slot) = peer.parked.checked_sub(1) else { return };
            let Some(envelope) = self.envelopes.at(slot) else { return };
            let ahead = envelope.sequence.wrapping_sub(peer.next_in) as i32;
            if ahead > 0 {
                return;
            }
            peer.parked = envelope.next;
            peer.orderly = peer.parked == 0;
            if ahead < 0 {
                // A second message of one number: dropped when its turn would have come.
                self.counters.trespasses = self.counters.trespasses.wrapping_add(1);
                self.refuse_silently(slot);
                continue;
            }
            peer.next_in = peer.next_in.wrapping_add(1);
            let key = Key { context: envelope.context, source: from, tag: envelope.tag };
            match self.matcher.take_posted(&key) {
                Some(request) => {
                    self.counters.expected = self.counters.expected.wrapping_add(1);
                    self.claim(slot, request);
                }
                None => {
                    self.counters.unexpected = self.counters.unexpected.wrapping_add(1);
                    self.enqueue(slot);
                }
            }
        }
    }

    /// Gives a kept message, which is in no queue, to a receive, which is in none either.
    fn claim(&mut self, slot: u32, request: u32) {
        self.unorder(request);
        let Some(handle) = self.envelopes.handle(slot) else { return };
        let Some(envelope) = self.envelopes.at_mut(slot) else { return };
        let Some(state) = self.requests.at_mut(request) else { return };
        state.peer = envelope.peer;
        state.tag = envelope.tag;
        state.total = envelope.total;
        state.wanted = state.fits();
        state.moved = u64::from(envelope.body);
        state.remote = envelope.sender;
        state.phase = Phase::Responding; // not receiving: nothing was asked for yet
        if envelope.filling {
            envelope.stage = Stage::Claimed;
            envelope.next = request;
            state.inflight = 1;
            return;
        }
        let envelope = *envelope;
        let place = self.unit_span(envelope.unit.wrapping_sub(1), envelope.body);
        if envelope.flags & wire::FLAG_LENT != 0 {
            let (loan, rail) = self.kept_loan(envelope.unit.wrapping_sub(1));
            self.read_exposed(request, rail, &loan);
        } else if let (Some((base, len)), Some(state)) = (place.as_contiguous(), self.requests.at_mut(request)) {
            // SAFETY: the unit was filled and is ours; the caller of `irecv` vouches for the sink.
            unsafe { state.span.unpack(base, len) };
            self.counters.copied = self.counters.copied.wrapping_add(len as u64);
        }
        let answered = self.peers.get(envelope.peer as usize).is_some_and(|peer| peer.answered == slot.wrapping_add(1));
        self.give_back(handle, answered);
        if envelope.rendezvous {
            self.respond_or_queue(request);
        } else {
            self.complete(request, Outcome::Success);
        }
    }

    /// The payload of a kept message is all in.
    pub(super) fn filled(&mut self, handle: Handle) {
        let Some(envelope) = self.envelopes.get_mut(handle) else { return };
        envelope.filling = false;
        let (stage, request) = (envelope.stage, envelope.next);
        match stage {
            Stage::Claimed => {
                if let Some(state) = self.requests.at_mut(request) {
                    state.inflight = 0;
                }
                self.claim(handle.slot(), request);
            }
            Stage::Refused => self.put_refused(handle.slot()),
            Stage::Parked | Stage::Queued | Stage::Taken | Stage::Broken => {}
        }
    }

    /// Frees an envelope with its unit, and owes the credit for it.
    pub(super) fn give_back(&mut self, handle: Handle, answer: bool) {
        let Some(envelope) = self.envelopes.free(handle) else { return };
        if let Some(unit) = envelope.unit.checked_sub(1).and_then(|slot| self.units.handle(slot)) {
            self.units.free(unit);
        }
        let from = envelope.peer;
        if envelope.flags & wire::FLAG_ANSWER != 0 {
            self.spares_used = self.spares_used.saturating_sub(1);
            if answer && let Some(peer) = self.peers.get_mut(from as usize) {
                peer.answered = 0;
            }
        } else {
            let unit = envelope.body != 0;
            if let Some(peer) = self.peers.get_mut(from as usize) {
                peer.kept_envelopes = peer.kept_envelopes.saturating_sub(1);
                peer.kept_units = peer.kept_units.saturating_sub(unit.into());
            }
            self.owe(from, unit);
        }
    }

    /// Owes a peer credit; from half of its share on it is sent without waiting for a frame to ride on.
    #[inline]
    pub(super) fn owe(&mut self, to: u32, unit: bool) {
        let Some(peer) = self.peers.get_mut(to as usize) else { return };
        peer.owe(unit);
        if peer.comes_due(self.credit_slack) {
            self.put_to_work(to);
        }
    }

    /// The first bytes of a payload unit as memory.
    pub(super) fn unit_span(&self, unit: u32, len: u32) -> Span {
        if len == 0 {
            return Span::EMPTY;
        }
        let offset = (unit as usize).wrapping_mul(self.unit_bytes as usize);
        Span::contiguous(self.unit_memory.wrapping_add(offset), len as usize)
    }

    /// Drops a frame that its sender had no right to send.
    fn trespass(&mut self, rail: usize, frame: &Frame) -> Option<u32> {
        self.counters.trespasses = self.counters.trespasses.wrapping_add(1);
        warn!("peer {} went beyond its credit: a message was dropped", frame.from.0);
        self.drop_frame(rail, frame);
        None
    }

    pub(super) fn drop_frame(&mut self, rail: usize, frame: &Frame) {
        if !frame.is_whole()
            && let Some(rail) = self.rails.rail_mut(rail)
        {
            rail.release(frame.id);
        }
    }

    /// A later fragment, for the receive that it names.
    #[inline]
    pub(super) fn deliver_fragment(&mut self, rail: usize, frame: &Frame, header: wire::Fragment) {
        let handle = Handle::from_bits(header.receiver.get());
        let body = u64::from(frame.len).saturating_sub(size_of::<wire::Fragment>() as u64);
        let offset = header.offset.get();
        let state = self.requests.get_mut(handle).filter(|state| {
            state.phase == Phase::Receiving
                && state.peer == frame.from.0
                && state.flags & RECEIVE != 0
                && state.moved.checked_add(body).is_some_and(|moved| moved <= state.wanted)
                && offset.checked_add(body).is_some_and(|end| end <= state.wanted)
        });
        let Some(state) = state else {
            self.counters.stale = self.counters.stale.wrapping_add(1);
            return self.drop_frame(rail, frame);
        };
        self.counters.fragments_received = self.counters.fragments_received.wrapping_add(1);
        let sink = state.span.window(offset, body);
        state.moved = state.moved.saturating_add(body);
        if frame.is_whole() {
            let bytes = frame.head().get(size_of::<wire::Fragment>()..).unwrap_or_default();
            // SAFETY: the caller of `irecv` vouches for the sink until the request is done.
            unsafe { sink.unpack(bytes.as_ptr(), bytes.len()) };
        } else if let Some(rail) = self.rails.rail_mut(rail) {
            // SAFETY: as above; while the delivery is pending `inflight` keeps the request from being done.
            let delivery = unsafe { rail.deliver(frame.id, size_of::<wire::Fragment>(), sink, request_cookie(handle)) };
            if delivery == Delivery::Pending {
                state.inflight = state.inflight.saturating_add(1);
            }
        }
        self.settle_receive(handle.slot());
    }

    /// Ends a receive if all of its bytes are in.
    pub(super) fn settle_receive(&mut self, slot: u32) {
        let Some(state) = self.requests.at(slot) else { return };
        if state.phase == Phase::Receiving && state.inflight == 0 && state.moved >= state.wanted {
            self.let_go(slot);
            self.deactivate(slot);
            self.complete(slot, Outcome::Success);
        }
    }

    /// Tells the sender that its message matched, now or when there is room.
    fn respond_or_queue(&mut self, slot: u32) {
        self.unorder(slot); // before it enters a list
        self.activate(slot);
        self.respond(slot);
    }

    /// Tells the sender what is wanted of its message. Leaves the active list when that was sent.
    pub(super) fn respond(&mut self, slot: u32) {
        let Some(handle) = self.requests.handle(slot) else { return };
        let Some(state) = self.requests.at(slot) else { return };
        let (to, sender, wanted) = (state.peer, state.remote, state.wanted);
        let more = state.moved < state.wanted;
        let sent = if more {
            let ack = wire::Ack::new(sender, handle, wanted);
            let plan = self.plan(slot);
            self.control(to, plan.map_or(ack, |plan| ack.with_device(plan.flag, plan.by_frames)))
        } else {
            self.control(to, wire::Finish::new(sender))
        };
        match sent {
            Ok(()) => {}
            Err(SendError::Busy) => return,
            Err(_) => {
                self.deactivate(slot);
                self.ended = self.ended.wrapping_add(1);
                self.let_go(slot);
                return self.complete(slot, Outcome::PeerFailed);
            }
        }
        let count = if more { &mut self.counters.acks_sent } else { &mut self.counters.finishes_sent };
        *count = count.wrapping_add(1);
        self.deactivate(slot);
        if let Some(state) = self.requests.at_mut(slot) {
            state.phase = Phase::Receiving;
        }
        // Once too often where a rail still writes: nothing but a vain look comes of it.
        self.ended = self.ended.wrapping_add(u32::from(!more));
        if !self.rdma.is_idle() {
            return self.further_receive(slot);
        }
        self.settle_receive(slot);
    }

    /// Tells a sender that its message is not taken, and frees its envelope, now or when there is room.
    pub(super) fn refuse(&mut self, slot: u32, reason: Reason) {
        let Some(envelope) = self.envelopes.at_mut(slot) else { return };
        if !envelope.rendezvous {
            return self.refuse_silently(slot); // its send is complete: there is nobody to tell
        }
        envelope.stage = Stage::Refused;
        envelope.sequence = reason as u32;
        if !envelope.filling {
            self.put_refused(slot);
        }
    }

    /// Drops a kept message without a word.
    fn refuse_silently(&mut self, slot: u32) {
        let Some(handle) = self.envelopes.handle(slot) else { return };
        let Some(envelope) = self.envelopes.at_mut(slot) else { return };
        envelope.rendezvous = false;
        if envelope.filling {
            envelope.stage = Stage::Refused;
        } else {
            self.give_back(handle, true);
        }
    }

    fn put_refused(&mut self, slot: u32) {
        if !self.tell_refusal(slot)
            && let Some(envelope) = self.envelopes.at_mut(slot)
        {
            envelope.next = self.refused;
            self.waiting = true;
            self.refused = slot.wrapping_add(1);
        }
    }

    /// Sends refusals as far as there is room. One peer without room holds up no other.
    pub(super) fn run_refused(&mut self) {
        let (mut before, mut link) = (None, self.refused);
        while let Some(slot) = link.checked_sub(1) {
            let Some(envelope) = self.envelopes.at(slot) else { return };
            link = envelope.next;
            if !self.tell_refusal(slot) {
                before = Some(slot);
                continue;
            }
            match before.and_then(|before| self.envelopes.at_mut(before)) {
                Some(before) => before.next = link,
                None => self.refused = link,
            }
        }
    }

    /// Tells a sender that its message is not taken, and frees the envelope; `false` where there is no room for that now.
    fn tell_refusal(&mut self, slot: u32) -> bool {
        let Some(handle) = self.envelopes.handle(slot) else { return true };
        let Some(envelope) = self.envelopes.at(slot) else { return true };
        let (to, sender, told) = (envelope.peer, envelope.sender, !envelope.rendezvous);
        let reason = Reason::from_wire(envelope.sequence).unwrap_or(Reason::NoCommunicator);
        if !told {
            if self.control(to, wire::Reject::new(sender, reason)) == Err(SendError::Busy) {
                return false;
            }
            self.counters.rejects_sent = self.counters.rejects_sent.wrapping_add(1);
        }
        self.give_back(handle, true);
        true
    }

    /// The outcome of a request, once it is over; its slot is free then, and its memory the caller's again.
    #[inline]
    pub fn test(&mut self, request: Request) -> Option<Result<super::Status, super::Failure>> {
        self.take_outcome(request)
    }
}
