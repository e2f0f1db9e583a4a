//! The receiver's side: the answers of peers to our asks.

use zerocopy::FromZeros;

use crate::list::OptSlot;
use crate::pml::engine::Pml;
use crate::pml::flow::probe::PROBES;
use crate::pml::matching::Key;
use crate::pml::peers::flags::{ASKING, ASKING_PROBE, ASKING_WIDE, PROBE, REJECT_DUE};
use crate::pml::rails::Rails;
use crate::pml::requests::errors::Refusal;
use crate::pml::requests::state::{Phase, RECEIVE, Remote, RequestState};
use crate::pml::unexpected::state::{EnvelopeStage, NARROW, Unexpected};
use crate::pool::Handle;
use crate::ptl::First;
use crate::rail::Frame;
use crate::wire;
use crate::wire::Reason;

impl<R: Rails> Pml<'_, R> {
    /// Handles an arriving answer: it is matched now, kept for a probe, or sent back. Returns whether it matched.
    pub(in crate::pml) fn on_answer(&mut self, rail: usize, frame: &Frame, first: First) -> bool {
        let from = frame.from.0;
        let Some(peer) = self.peers.get_mut(from as usize) else { return false };
        let (asking, probe, wide) = (peer.has(ASKING), PROBES && peer.has(ASKING_PROBE), peer.has(ASKING_WIDE));
        peer.clear(ASKING | ASKING_PROBE | ASKING_WIDE);
        peer.asks.empty_asks = 0;
        let (in_turn, cursor) = (first.sequence == peer.next_in, peer.asks.cursor);
        self.queue_work(from);
        if asking && in_turn && first.rendezvous {
            let key = Key { context: first.context, source: from, tag: first.tag };
            // The answer is the first held-back message that the ask accepts. A receive that accepts more tags must not take it:
            // the peer may hold back an earlier message for that receive.
            let posted = self.matcher.peek_posted(&key);
            let fits = |slot| wide || self.requests.at(slot).is_some_and(|state| state.tag == first.tag);
            if let Some(slot) = posted.filter(|slot| fits(*slot)) {
                if self.requests.at(slot).is_none_or(|state| state.remote.as_posting() != cursor)
                    && let Some(peer) = self.peers.get_mut(from as usize)
                {
                    peer.asks.cursor = 0; // another receive took it: ask again for the receive that it was meant for
                }
                let matched = self.match_first(rail, frame, first);
                if matched {
                    self.took_answer(from);
                }
                return matched;
            }
            if posted.is_some()
                && let Some(peer) = self.peers.get_mut(from as usize)
            {
                peer.asks.cursor = 0; // ask first for the receive that would take the answer
            } else if probe && self.keep_answer(rail, frame, first, wide) {
                return false;
            }
        }
        self.drop_frame(rail, frame);
        let Some(peer) = self.peers.get_mut(from as usize) else { return false };
        if !in_turn {
            peer.asks.cursor = 0;
            if probe {
                peer.set(PROBE);
            }
        }
        peer.reject = first.sender;
        // A correct peer is never further ahead than its credit. The answer of any other peer is sent back at once.
        let ahead = first.sequence.wrapping_sub(peer.next_in);
        peer.reject_at = if ahead <= i16::MAX as u32 { first.sequence } else { peer.next_in } as u16;
        peer.set(REJECT_DUE);
        false
    }

    /// Keeps an answer in an envelope beyond all credit, where a probe finds it.
    fn keep_answer(&mut self, rail: usize, frame: &Frame, first: First, wide: bool) -> bool {
        if self.spares_used >= self.config.probes {
            // An answer that is kept for another probe may be sent back, to make room.
            let mut next = self.matcher.next_unexpected(None);
            while let Some((slot, _)) = next {
                let answer = |envelope: &Unexpected| envelope.flags & wire::FLAG_ANSWER != 0;
                if self.envelopes.at(slot).is_some_and(answer) && self.may_evict(slot) {
                    self.evict(slot);
                    break;
                }
                next = self.matcher.next_unexpected(Some(slot));
            }
        }
        if self.spares_used >= self.config.probes {
            return false;
        }
        let Some(slot) = self.keep(rail, frame, first, EnvelopeStage::Queued) else { return false };
        self.spares_used = self.spares_used.wrapping_add(1);
        if let Some(envelope) = self.envelopes.at_mut(slot) {
            envelope.flags |= if wide { 0 } else { NARROW };
            envelope.sequence = self.missed_probes;
        }
        if let Some(peer) = self.peers.get_mut(frame.from.0 as usize) {
            peer.asks.kept_answer = OptSlot::some(slot);
            peer.asks.probes = 0;
            peer.clear(PROBE); // otherwise the answer would be sent back in order to ask for its own probe
        }
        let key = Key { context: first.context, source: frame.from.0, tag: first.tag };
        self.matcher.add_unexpected(slot, key);
        self.counters.unexpected = self.counters.unexpected.wrapping_add(1);
        true
    }

    /// Moves an answer that a matched probe takes to a request, and frees its envelope. The sender is told, and goes on with
    /// other messages. `None` if there is no room to tell the sender now: the answer stays where it is.
    pub(in crate::pml) fn take_answer(&mut self, handle: Handle) -> Result<Option<Handle>, Refusal> {
        let Some(envelope) = self.envelopes.get(handle) else { return Ok(None) };
        let (from, sender) = (envelope.peer, envelope.sender);
        let state = RequestState {
            phase: Phase::Taken,
            flags: RECEIVE,
            peer: from,
            context: envelope.context,
            tag: envelope.tag,
            total: envelope.total,
            remote: Remote::handle(sender),
            ..FromZeros::new_zeroed()
        };
        let request = self.requests.take(state).map_err(|_| Refusal::Busy)?;
        let mut header = wire::Ack::new(sender, Handle::NONE, 0);
        header.common.flags = wire::FLAG_PROBE;
        if self.control(from, header).is_err() {
            self.requests.free(request);
            return Ok(None);
        }
        self.matcher.remove_unexpected(handle.slot());
        self.took_answer(from);
        self.give_back(handle, true);
        Ok(Some(request))
    }

    /// Sends an answer that was kept for a probe back to its sender.
    pub(in crate::pml) fn evict(&mut self, slot: u32) {
        if self.matcher.remove_unexpected(slot) {
            self.refuse(slot, Reason::Unmatched);
        }
    }

    /// Sends the reject that is due to a peer.
    pub(in crate::pml) fn send_reject(&mut self, index: u32) {
        let Some(peer) = self.peers.get(index as usize) else { return };
        if self.control(index, wire::Reject::new(peer.reject, Reason::Unmatched)).is_ok()
            && let Some(peer) = self.peers.get_mut(index as usize)
        {
            peer.clear(REJECT_DUE);
            self.counters.rejects_sent = self.counters.rejects_sent.wrapping_add(1);
        }
    }
}
