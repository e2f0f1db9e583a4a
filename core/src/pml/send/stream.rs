//! Sending later fragments over all links of a peer, and the end of a send.

use crate::convertor::LAYOUTS;
use crate::pml::engine::Pml;
use crate::pml::rails::Rails;
use crate::pml::rdma::piece::AfterFrames;
use crate::pml::requests::cookie::request_cookie;
use crate::pml::requests::state::{DRAIN, Outcome, Phase};
use crate::pml::send::schedule::{charge, least_used};
use crate::pml::stall::liveness::HEARD;
use crate::ptl::Unsent;
use crate::rail::{Endpoint, LATER, SendError, Sent};
use crate::{ptl, wire};

impl<R: Rails> Pml<'_, R> {
    /// Begins to send the other bytes, up to `wanted`, after the receiver's ack.
    pub(in crate::pml) fn start_streaming(&mut self, slot: u32) {
        let Some(state) = self.requests.at_mut(slot) else { return };
        if state.moved >= state.wanted {
            return self.end_send(slot, Outcome::Success);
        }
        state.phase = Phase::Streaming;
        self.activate(slot);
    }

    /// Ends a send of which all bytes were handed to rails. It completes as soon as no rail reads its memory, and in mode
    /// `Complete` as soon as the rails have drained as well.
    pub(in crate::pml) fn end_send(&mut self, slot: u32, outcome: Outcome) {
        self.release_piece(slot);
        let Some(state) = self.requests.at_mut(slot) else { return };
        state.outcome = outcome;
        state.phase = Phase::Leaving;
        let (to, idle, drain) = (state.peer, state.is_idle(), state.flags & DRAIN != 0);
        if drain && !self.drained(to) {
            self.activate(slot);
        } else if idle {
            self.ended = self.ended.wrapping_add(1);
            self.complete(slot, outcome);
        }
    }

    /// Sends fragments of a request as far as rails take them. The request leaves the active list when all were handed over.
    ///
    /// A link that was busy is not tried again in the same round, by this request or by later ones: an attempt costs more than
    /// everything else here, and rarely finds room.
    pub(in crate::pml) fn stream(&mut self, slot: u32) {
        let (count, round) = (self.rails.count(), self.round);
        let most = self.requests.at(slot).map_or(0, |state| self.longest_fragment(state.peer));
        if LAYOUTS && self.requests.at(slot).is_some_and(|state| state.outcome == Outcome::BadMemory) {
            return self.abort_send(slot);
        }
        let wants_room = !self.rdma.is_idle() && self.advance_piece(slot);
        loop {
            let Some(state) = self.requests.at(slot) else { return };
            let until = self.frames_until(slot, state.wanted);
            if state.moved >= until {
                match self.after_frames(slot) {
                    AfterFrames::Nothing => break,
                    AfterFrames::ByFrames => continue,
                    AfterFrames::ByDevice if wants_room => return,
                    AfterFrames::ByDevice => return self.deactivate(slot),
                }
            }
            let (to, from, left) = (state.peer, state.moved, until.saturating_sub(state.moved));
            let (span, remote) = (state.span, state.remote.as_handle());
            let Some(handle) = self.requests.handle(slot) else { return };
            let start = (to as usize).wrapping_mul(count);
            let links = self.peers.get(to as usize).map_or(0, |peer| peer.route.links as usize);
            let left = left.min(most);
            let Some(row) = self.links.get_mut(start..start.wrapping_add(links)) else { return };
            let (index, sent, bytes) = loop {
                let Some(index) = least_used(row, round) else { return };
                let Some(link) = row.get_mut(index) else { return };
                let Some(rail) = self.rails.rail_mut(link.rail as usize) else { return };
                let Some(peer) = self.peers.get_mut(to as usize) else { return };
                let mut header = wire::Fragment::new(remote, from);
                peer.stamp(&mut header.common);
                let rest = span.window(from, left);
                // SAFETY: as in `send_eager`.
                match unsafe { ptl::fragment(rail, Endpoint(link.endpoint), &header, rest, request_cookie(handle)) } {
                    Ok((sent, bytes)) => {
                        peer.sent();
                        peer.liveness.set(HEARD); // the rail has room again
                        break (index, sent, bytes);
                    }
                    Err(Unsent::Unreadable) if LAYOUTS => return self.abort_send(slot),
                    Err(Unsent::Unreadable) => return,
                    Err(Unsent::Refused(_)) => {
                        self.counters.busy = self.counters.busy.wrapping_add(1);
                        link.busy_in = round;
                    }
                }
            };
            charge(row, index, round, bytes);
            self.counters.fragments_sent = self.counters.fragments_sent.wrapping_add(1);
            let Some(state) = self.requests.at_mut(slot) else { return };
            state.moved = state.moved.saturating_add(bytes);
            if LATER && sent == Sent::InPlace {
                state.inflight = state.inflight.saturating_add(1);
            }
        }
        self.deactivate(slot);
        self.end_send(slot, Outcome::Success);
    }

    /// Ends a send whose memory cannot be read, as soon as there is room to tell the receiver.
    #[cold]
    fn abort_send(&mut self, slot: u32) {
        let Some(state) = self.requests.at_mut(slot) else { return };
        state.outcome = Outcome::BadMemory;
        let (to, mut header) = (state.peer, wire::Fragment::new(state.remote.as_handle(), state.moved));
        header.common.flags = wire::FLAG_ABORT;
        if self.control(to, header) == Err(SendError::Busy) {
            return; // it stays active
        }
        self.deactivate(slot);
        self.end_send(slot, Outcome::BadMemory);
    }
}
