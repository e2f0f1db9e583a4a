//! Giving kept messages to their receives, and freeing their envelopes.

use crate::list::OptSlot;
use crate::pml::engine::Pml;
use crate::pml::flow::probe::PROBES;
use crate::pml::rails::Rails;
use crate::pml::requests::state::{Outcome, Phase, Remote};
use crate::pml::unexpected::state::{EnvelopeStage, Unexpected};
use crate::pool::Handle;
use crate::rail::SINGLE_COPY;
use crate::wire;

impl<R: Rails> Pml<'_, R> {
    /// Gives a kept message to a receive. Neither is in a queue any more.
    pub(in crate::pml) fn claim(&mut self, slot: u32, request: u32) {
        self.forget_posting(request);
        let answer = |envelope: &&Unexpected| PROBES && envelope.flags & wire::FLAG_ANSWER != 0;
        if let Some(envelope) = self.envelopes.at(slot).filter(answer) {
            let from = envelope.peer;
            self.took_answer(from);
        }
        let Some(handle) = self.envelopes.handle(slot) else { return };
        let Some(envelope) = self.envelopes.at_mut(slot) else { return };
        let Some(state) = self.requests.at_mut(request) else { return };
        state.peer = envelope.peer;
        state.tag = envelope.tag;
        state.total = envelope.total;
        state.wanted = state.fits();
        state.moved = u64::from(envelope.body);
        state.remote = Remote::handle(envelope.sender);
        state.phase = Phase::Responding; // not `Receiving`: no ack was sent, so no fragment may come
        if envelope.is_filling() {
            envelope.stage = EnvelopeStage::Claimed;
            envelope.next = OptSlot::some(request);
            state.inflight = 1;
            return;
        }
        let envelope = *envelope;
        let place = self.unit_span(envelope.unit, envelope.body);
        if SINGLE_COPY && envelope.flags & wire::FLAG_EXPOSED != 0 {
            let (buffer, rail) = self.kept_remote_buffer(envelope.unit);
            self.read_exposed(request, rail, &buffer);
        } else if let (Some((base, len)), Some(state)) = (place.as_contiguous(), self.requests.at_mut(request)) {
            // SAFETY: the unit was filled and belongs to this engine; the caller of `irecv` guarantees that the sink is valid.
            unsafe { state.span.unpack(base, len) };
            self.counters.copied = self.counters.copied.wrapping_add(len as u64);
        }
        let answered =
            PROBES && self.peers.get(envelope.peer as usize).is_some_and(|peer| peer.asks.kept_answer.is(slot));
        self.give_back(handle, answered);
        if envelope.rendezvous {
            self.respond_or_queue(request);
        } else {
            self.complete(request, Outcome::Success);
        }
    }

    /// Handles that the whole payload of a kept message has arrived.
    pub(in crate::pml) fn filled(&mut self, handle: Handle) {
        let Some(envelope) = self.envelopes.get_mut(handle) else { return };
        envelope.filling = false;
        let (stage, request) = (envelope.stage, envelope.next.get());
        match stage {
            EnvelopeStage::Claimed => {
                let Some(request) = request else { return };
                if let Some(state) = self.requests.at_mut(request) {
                    state.inflight = 0;
                }
                self.claim(handle.slot(), request);
            }
            EnvelopeStage::Refused => self.put_refused(handle.slot()),
            EnvelopeStage::OutOfOrder | EnvelopeStage::Queued | EnvelopeStage::Taken | EnvelopeStage::Broken => {}
        }
    }

    /// Frees an envelope and its unit, and owes the peer the credit for both. `answer`: if the message is an answer, the peer has
    /// no kept answer any more.
    pub(in crate::pml) fn give_back(&mut self, handle: Handle, answer: bool) {
        let Some(envelope) = self.envelopes.free(handle) else { return };
        if let Some(unit) = envelope.unit.get().and_then(|slot| self.units.handle(slot)) {
            self.units.free(unit);
        }
        let from = envelope.peer;
        if PROBES && envelope.flags & wire::FLAG_ANSWER != 0 {
            self.spares_used = self.spares_used.saturating_sub(1);
            if answer && let Some(peer) = self.peers.get_mut(from as usize) {
                peer.asks.kept_answer = OptSlot::NONE;
            }
        } else {
            let unit = envelope.body != 0;
            if let Some(peer) = self.peers.get_mut(from as usize) {
                peer.granted.release(unit);
            }
            self.owe(from, unit);
        }
    }
}
