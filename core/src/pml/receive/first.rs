//! Arriving first fragments, which are matched in the order of their numbers.

use crate::list::OptSlot;
use crate::pml::engine::Pml;
use crate::pml::matching::Key;
use crate::pml::rails::Rails;
use crate::pml::requests::cookie::request_cookie;
use crate::pml::requests::state::{Outcome, Phase, Remote};
use crate::pml::single_copy::remote_buffer_of;
use crate::pml::unexpected::state::EnvelopeStage;
use crate::ptl::First;
use crate::rail::{Delivery, Frame, LATER, Lost, Rail, SINGLE_COPY};
use crate::wire;

impl<R: Rails> Pml<'_, R> {
    /// Handles a first fragment in its turn: delivers it to its receive, or keeps it until there is one. Returns whether it
    /// matched.
    #[inline]
    pub(in crate::pml) fn match_first(&mut self, rail: usize, frame: &Frame, first: First) -> bool {
        let key = Key { context: first.context, source: frame.from.0, tag: first.tag };
        if let Some(slot) = self.matcher.take_posted(&key) {
            self.counters.expected = self.counters.expected.wrapping_add(1);
            self.begin_receive(slot, rail, frame, first);
            return true;
        }
        if let Some(slot) = self.keep(rail, frame, first, EnvelopeStage::Queued) {
            self.counters.unexpected = self.counters.unexpected.wrapping_add(1);
            self.enqueue(slot);
        }
        false
    }

    /// Delivers a first fragment to the receive that it matched.
    #[inline]
    pub(in crate::pml) fn begin_receive(&mut self, slot: u32, rail: usize, frame: &Frame, first: First) {
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
        state.remote = Remote::handle(first.sender);
        if SINGLE_COPY && first.flags & wire::FLAG_EXPOSED != 0 {
            state.phase = Phase::Responding;
            self.read_exposed(slot, rail, &remote_buffer_of(frame));
            return self.respond_or_queue(slot);
        }
        if frame.is_whole() {
            let bytes = frame.head().get(first.header as usize..).unwrap_or_default();
            // SAFETY: the caller of `irecv` guarantees that the sink is valid until the request is done; the frame's bytes are in
            // memory of this engine.
            unsafe { state.span.unpack(bytes.as_ptr(), bytes.len()) };
        } else if let Some(rail) = self.rails.rail_mut(rail) {
            // SAFETY: as above; while the delivery is pending `inflight` keeps the request from being done.
            let delivery = unsafe { rail.deliver(frame.id, first.header as usize, state.span, request_cookie(handle)) };
            if delivery == Delivery::Pending {
                if !LATER {
                    return self.lost(frame.from, Lost::Misbehaved); // then the rail does not access the sink any more
                }
                state.inflight = 1;
            }
        }
        if first.rendezvous {
            state.phase = Phase::Responding;
            self.respond_or_queue(slot);
        } else if state.is_idle() {
            self.complete(slot, Outcome::Success);
        } else {
            state.phase = Phase::Receiving;
            self.forget_posting(slot);
        }
    }

    /// Keeps a first fragment that arrived before earlier messages.
    pub(in crate::pml) fn hold_out_of_order(&mut self, rail: usize, frame: &Frame, first: First) {
        let Some(slot) = self.keep(rail, frame, first, EnvelopeStage::OutOfOrder) else { return };
        self.counters.out_of_order = self.counters.out_of_order.wrapping_add(1);
        let Some(peer) = self.peers.get_mut(frame.from.0 as usize) else { return };
        // The list is sorted by number, counted from the number that is due next. It is short if the rails' latencies are
        // similar.
        let (sequence, due) = (first.sequence, peer.next_in);
        let (mut before, mut next) = (None, peer.out_of_order);
        while let Some(other) = next.get().and_then(|other| self.envelopes.at(other)) {
            if other.sequence.wrapping_sub(due) >= sequence.wrapping_sub(due) {
                break;
            }
            (before, next) = (next.get(), other.next);
        }
        if let Some(envelope) = self.envelopes.at_mut(slot) {
            envelope.sequence = sequence;
            envelope.next = next;
        }
        let link = OptSlot::some(slot);
        match before.and_then(|before| self.envelopes.at_mut(before)) {
            Some(before) => before.next = link,
            None => peer.out_of_order = link,
        }
        peer.in_order = false;
    }

    /// Delivers the kept messages whose turn has come.
    pub(in crate::pml) fn deliver_in_order(&mut self, from: u32) {
        loop {
            let Some(peer) = self.peers.get_mut(from as usize) else { return };
            let Some(slot) = peer.out_of_order.get() else { return };
            let Some(envelope) = self.envelopes.at(slot) else { return };
            let ahead = envelope.sequence.wrapping_sub(peer.next_in) as i32;
            if ahead > 0 {
                return;
            }
            peer.out_of_order = envelope.next;
            peer.in_order = peer.out_of_order.is_none();
            if ahead < 0 {
                // A message whose number was used before is dropped when it is its turn.
                self.counters.credit_violations = self.counters.credit_violations.wrapping_add(1);
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
}
