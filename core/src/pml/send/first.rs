//! Sending first fragments: whole messages, and the beginnings of longer ones.

use crate::convertor::Span;
use crate::list::OptSlot;
use crate::pml::engine::Pml;
use crate::pml::peers::flags::LINKED;
use crate::pml::rails::Rails;
use crate::pml::requests::cookie::request_cookie;
use crate::pml::requests::state::{ANSWERING, Outcome, Phase, READY, SYNCHRONOUS};
use crate::pml::send::cache::extra;
use crate::pml::send::schedule::advance_turn;
use crate::rail::{LATER, Rail, RemoteBuffer, SendError, Sent};
use crate::{ptl, wire};

/// Bytes by which the header of a rendezvous is longer than that of an eager message.
const RENDEZVOUS_MORE: u32 = (size_of::<wire::Rendezvous>() - size_of::<wire::Match>()) as u32;

impl<R: Rails> Pml<'_, R> {
    /// Sends a whole message that is the first of the held-back ones.
    pub(in crate::pml) fn send_eager(&mut self, to: u32, slot: u32) -> Result<(), SendError> {
        let (index, endpoint) = self.first_link(to).ok_or(SendError::Unreachable)?;
        let handle = self.requests.handle(slot).ok_or(SendError::Unreachable)?;
        let state = self.requests.at_mut(slot).ok_or(SendError::Unreachable)?;
        let peer = self.peers.get_mut(to as usize).ok_or(SendError::Unreachable)?;
        let rail = self.rails.rail_mut(index).ok_or(SendError::Unreachable)?;
        let mut header = wire::Match::new(state.context, state.tag, peer.credit.next_out);
        peer.stamp(&mut header.common);
        let extra = extra(self.caches, index, state);
        // SAFETY: the caller of `isend` guarantees that the memory is valid until the request is done. While the rail reads it in
        // place (`inflight`) the request is not done.
        let sent = unsafe { ptl::first(rail, endpoint, &header, state.span, request_cookie(handle), extra) }?;
        peer.sent();
        peer.sent_message(state.total != 0);
        advance_turn(peer, self.links, to, self.rails.count());
        self.counters.eager_sent = self.counters.eager_sent.wrapping_add(1);
        state.moved = state.total;
        state.wanted = state.total;
        if LATER && sent == Sent::InPlace {
            state.inflight = state.inflight.saturating_add(1);
        }
        peer.release_held(&mut self.requests, &mut self.held_table, slot);
        self.end_send(slot, Outcome::Success);
        Ok(())
    }

    /// Sends the first fragment of a message whose other bytes wait for the receiver's ack. An `answer` takes no credit, and
    /// stays among the held-back sends until it is settled. If there is a `buffer`, the fragment carries it instead of payload.
    pub(in crate::pml) fn send_first(
        &mut self,
        to: u32,
        slot: u32,
        answer: bool,
        buffer: Option<&RemoteBuffer>,
    ) -> Result<(), SendError> {
        let (index, endpoint) = self.first_link(to).ok_or(SendError::Unreachable)?;
        let handle = self.requests.handle(slot).ok_or(SendError::Unreachable)?;
        let state = self.requests.at_mut(slot).ok_or(SendError::Unreachable)?;
        let peer = self.peers.get_mut(to as usize).ok_or(SendError::Unreachable)?;
        let rail = self.rails.rail_mut(index).ok_or(SendError::Unreachable)?;
        let mut header = wire::Rendezvous::new(state.context, state.tag, peer.credit.next_out, handle, state.total);
        // The receiver may read an exposed message before it is matched, unless the mode forbids that.
        let early = buffer.is_some() && state.flags & SYNCHRONOUS == 0;
        header.common.flags = if early { 0 } else { wire::FLAG_ACK }
            | if answer { wire::FLAG_ANSWER } else { 0 }
            | if state.flags & READY != 0 { wire::FLAG_READY } else { 0 }
            | if buffer.is_some() { wire::FLAG_EXPOSED } else { 0 };
        // Payload goes along if the receiver has a unit for it.
        let most = if answer || buffer.is_some() || peer.credit.units() == 0 || state.span.failures().is_some() {
            0
        } else {
            let attributes = rail.attributes();
            let frame = attributes.eager_limit.saturating_sub(size_of::<wire::Rendezvous>() as u32);
            let most = attributes.rendezvous_eager_limit.min(frame).min(peer.eager_body);
            // A frame may migrate to any rail, so it must fit all of them. This header is longer than that of an eager message.
            if peer.has(LINKED) { most.min(peer.eager_body.saturating_sub(RENDEZVOUS_MORE)) } else { most }
        };
        let payload = state.span.window(0, u64::from(most));
        let body = buffer.map_or(payload, |buffer| Span::of(&buffer.0));
        peer.stamp(&mut header.common);
        let extra = extra(self.caches, index, state);
        // SAFETY: as in `send_eager`; a buffer is short enough that the rail always copies it.
        let sent = unsafe { ptl::first(rail, endpoint, &header, body, request_cookie(handle), extra) }?;
        peer.sent();
        state.moved = payload.len();
        state.phase = Phase::Waiting;
        if LATER && sent == Sent::InPlace {
            state.inflight = state.inflight.saturating_add(1);
        }
        if answer {
            state.flags |= ANSWERING;
            peer.asked.answering = OptSlot::some(slot);
            self.counters.answers_sent = self.counters.answers_sent.wrapping_add(1);
        } else {
            peer.sent_message(!body.is_empty());
            advance_turn(peer, self.links, to, self.rails.count());
            peer.release_held(&mut self.requests, &mut self.held_table, slot);
            self.counters.rendezvous_sent = self.counters.rendezvous_sent.wrapping_add(1);
            if buffer.is_some() {
                self.note_exposed(slot);
            }
        }
        Ok(())
    }
}
