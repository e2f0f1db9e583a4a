//! A kept message goes to its receive, and its envelope is free again.

use crate::pml::engine::Pml;
use crate::pml::rails::Rails;
use crate::pml::requests::state::{Outcome, Phase};
use crate::pml::unexpected::state::EnvelopeStage;
use crate::pool::Handle;
use crate::wire;

impl<R: Rails> Pml<'_, R> {
    /// Gives a kept message, which is in no queue, to a receive, which is in none either.
    pub(in crate::pml) fn claim(&mut self, slot: u32, request: u32) {
        self.forget_posting(request);
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
            envelope.stage = EnvelopeStage::Claimed;
            envelope.next = request;
            state.inflight = 1;
            return;
        }
        let envelope = *envelope;
        let place = self.unit_span(envelope.unit.wrapping_sub(1), envelope.body);
        if envelope.flags & wire::FLAG_LENT != 0 {
            let (buffer, rail) = self.kept_remote_buffer(envelope.unit.wrapping_sub(1));
            self.read_exposed(request, rail, &buffer);
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
    pub(in crate::pml) fn filled(&mut self, handle: Handle) {
        let Some(envelope) = self.envelopes.get_mut(handle) else { return };
        envelope.filling = false;
        let (stage, request) = (envelope.stage, envelope.next);
        match stage {
            EnvelopeStage::Claimed => {
                if let Some(state) = self.requests.at_mut(request) {
                    state.inflight = 0;
                }
                self.claim(handle.slot(), request);
            }
            EnvelopeStage::Refused => self.put_refused(handle.slot()),
            EnvelopeStage::OutOfOrder | EnvelopeStage::Queued | EnvelopeStage::Taken | EnvelopeStage::Broken => {}
        }
    }

    /// Frees an envelope with its unit, and owes the credit for it.
    pub(in crate::pml) fn give_back(&mut self, handle: Handle, answer: bool) {
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
}
