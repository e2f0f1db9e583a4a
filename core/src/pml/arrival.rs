//! Dispatch: passes arriving frames, and reports of bodies that rails have read or written, to the part of the engine that
//! handles them.

use crate::pml::engine::Pml;
use crate::pml::peers::state::PeerStatus;
use crate::pml::rails::Rails;
use crate::pml::rdma::{self, piece::TransferPlan};
use crate::pml::requests::cookie::ENVELOPE_COOKIE;
use crate::pml::requests::state::{ACTIVE, ANSWERING, Outcome, Phase, RECEIVE, Remote};
use crate::pml::stall::liveness::HEARD;
use crate::pool::Handle;
use crate::ptl::{First, Upcalls};
use crate::rail::{Cookie, Frame, LATER, Lost, Peer, Rail};
use crate::rma::{self, Rma};
use crate::wire::Reason;
use crate::{ptl, wire};

impl<R: Rails> Pml<'_, R> {
    pub(super) fn drop_frame(&mut self, rail: usize, frame: &Frame) {
        if !frame.is_whole()
            && let Some(rail) = self.rails.rail_mut(rail)
        {
            rail.release(frame.id);
        }
    }

    /// Handles an arriving frame. `moved`: the frame has migrated, so another link sent it first.
    #[inline]
    pub(super) fn arrive(&mut self, rail: usize, moved: bool, frame: &Frame) {
        if let Some(peer) = self.peers.get_mut(frame.from.0 as usize) {
            peer.liveness.set(HEARD);
        }
        ptl::receive(frame, &mut Arrival { pml: self, rail, moved });
    }

    /// Handles [`Event::Sent`](crate::rail::Event::Sent): a rail does not read the body any more.
    pub(super) fn body_sent(&mut self, cookie: Cookie) {
        if !LATER {
            return;
        }
        if rma::ENABLED && Rma::is_own(cookie) {
            return self.one_sided_memory(cookie, false);
        }
        let handle = Handle::from_bits(cookie.0);
        let Some(state) = self.requests.get_mut(handle) else { return };
        state.inflight = state.inflight.saturating_sub(1);
        if let Some(peer) = self.peers.get_mut(state.peer as usize) {
            peer.liveness.set(HEARD);
        }
        if state.phase == Phase::Leaving && state.inflight == 0 && state.flags & ACTIVE == 0 {
            let outcome = state.outcome;
            self.complete(handle.slot(), outcome);
        }
    }

    /// Handles [`Event::Delivered`](crate::rail::Event::Delivered): a rail has written the body.
    pub(super) fn body_delivered(&mut self, cookie: Cookie) {
        if !LATER {
            return;
        }
        if rma::ENABLED && Rma::is_own(cookie) {
            return self.one_sided_memory(cookie, true);
        }
        let handle = Handle::from_bits(cookie.0 & !ENVELOPE_COOKIE);
        if cookie.0 & ENVELOPE_COOKIE != 0 {
            return self.filled(handle);
        }
        let Some(state) = self.requests.get_mut(handle) else { return };
        state.inflight = state.inflight.saturating_sub(1);
        if let Some(peer) = self.peers.get_mut(state.peer as usize) {
            peer.liveness.set(HEARD);
        }
        self.settle_receive(handle.slot());
    }

    /// The waiting send that a peer's ack, finish or reject names. `None`, and counted as stale, if there is none.
    pub(super) fn waiting(&mut self, from: Peer, bits: u64) -> Option<u32> {
        let slot = self.still_waiting(from, bits);
        match slot {
            Some(slot) => self.settle_exposed(slot),
            None => self.counters.stale = self.counters.stale.wrapping_add(1),
        }
        slot
    }

    /// As [`waiting`](Self::waiting), but a send that does not wait any more is not counted as stale.
    fn still_waiting(&self, from: Peer, bits: u64) -> Option<u32> {
        let handle = Handle::from_bits(bits);
        let state = self.requests.get(handle)?;
        let waits = state.phase == Phase::Waiting && state.peer == from.0 && state.flags & RECEIVE == 0;
        waits.then(|| handle.slot())
    }
}

/// The engine while it handles a frame of one rail.
pub(super) struct Arrival<'a, 'm, R> {
    pml: &'a mut Pml<'m, R>,
    /// Index of the rail that delivered the frame.
    rail: usize,
    /// The frame has migrated.
    moved: bool,
}

impl<R: Rails> Upcalls for Arrival<'_, '_, R> {
    #[inline]
    fn credit(&mut self, from: Peer, envelopes: u16, units: u16) {
        let Some(peer) = self.pml.peers.get_mut(from.0 as usize) else { return };
        peer.gain(envelopes, units);
        if !peer.held.is_empty() {
            self.pml.queue_work(from.0);
        }
    }

    #[inline]
    fn first(&mut self, frame: &Frame, first: First) -> bool {
        let from = frame.from.0;
        let pml = &mut *self.pml;
        let Some(peer) = pml.peers.get_mut(from as usize) else {
            pml.drop_frame(self.rail, frame);
            return false;
        };
        if peer.status != PeerStatus::Up {
            pml.drop_frame(self.rail, frame);
            return false;
        }
        if first.flags & wire::FLAG_ANSWER != 0 {
            return pml.on_answer(self.rail, frame, first);
        }
        let ahead = first.sequence.wrapping_sub(peer.next_in) as i32;
        if ahead == 0 {
            peer.next_in = peer.next_in.wrapping_add(1);
            let waiting = peer.out_of_order.is_some();
            let matched = pml.match_first(self.rail, frame, first);
            if waiting {
                pml.deliver_in_order(from);
            }
            return matched;
        }
        if ahead > 0 {
            pml.hold_out_of_order(self.rail, frame, first);
        } else {
            pml.counters.credit_violations = pml.counters.credit_violations.wrapping_add(1);
            pml.drop_frame(self.rail, frame);
        }
        false
    }

    #[inline]
    fn fragment(&mut self, frame: &Frame, header: wire::Fragment) {
        self.pml.deliver_fragment(self.rail, frame, header);
    }

    fn acked(&mut self, from: Peer, header: wire::Ack) {
        if header.common.flags & wire::FLAG_PROBE != 0 {
            // A matched probe has taken the message. The ack that says what is wanted follows, or has overtaken this one.
            if let Some(slot) = self.pml.still_waiting(from, header.sender.get()) {
                self.pml.settle_answer(slot, true);
            }
            return;
        }
        let Some(slot) = self.pml.waiting(from, header.sender.get()) else { return };
        self.pml.settle_answer(slot, true);
        let Some(state) = self.pml.requests.at_mut(slot) else { return };
        state.wanted = header.wanted.get().min(state.total);
        let flag = header.common.flags & (wire::FLAG_PUT | wire::FLAG_GET);
        if rdma::ENABLED && (flag != 0 || !self.pml.rdma.is_idle()) {
            self.pml.await_device(slot, TransferPlan { flag, by_frames: header.by_frames.get() });
        }
        let Some(state) = self.pml.requests.at_mut(slot) else { return };
        state.remote = Remote::handle(header.receiver.get());
        self.pml.start_streaming(slot);
    }

    fn finished(&mut self, from: Peer, header: wire::Finish) {
        let Some(slot) = self.pml.waiting(from, header.sender.get()) else { return };
        self.pml.settle_answer(slot, true);
        self.pml.end_send(slot, Outcome::Success);
    }

    fn rejected(&mut self, from: Peer, header: wire::Reject) {
        let Some(slot) = self.pml.waiting(from, header.sender.get()) else { return };
        let reason = Reason::from_wire(header.reason.get());
        let answers = self.pml.requests.at(slot).is_some_and(|state| state.flags & ANSWERING != 0);
        if reason == Some(Reason::Unmatched) && !answers {
            // Only an answer may be sent back. A message that was sent in its turn keeps its place at the receiver, which still
            // has to acknowledge, finish or refuse it.
            self.pml.counters.stale = self.pml.counters.stale.wrapping_add(1);
            return;
        }
        self.pml.counters.rejects_received = self.pml.counters.rejects_received.wrapping_add(1);
        let outcome = match reason {
            Some(Reason::Unmatched) => return self.pml.settle_answer(slot, false),
            Some(Reason::NotReady) => Outcome::NotReady,
            Some(Reason::NoCommunicator) | None => Outcome::NoCommunicator,
        };
        self.pml.settle_answer(slot, true);
        self.pml.end_send(slot, outcome);
    }

    fn held(&mut self, from: Peer, header: wire::Held) {
        self.pml.on_held(from.0, header);
    }

    fn asked(&mut self, from: Peer, header: wire::Ask) {
        self.pml.on_asked(from.0, header);
    }

    fn nothing(&mut self, from: Peer, header: wire::Nothing) {
        self.pml.on_nothing(from.0, header);
    }

    fn offered(&mut self, from: Peer, header: wire::Offer) {
        self.pml.on_offer(from, (!self.moved).then_some(self.rail), &header);
    }

    fn performed(&mut self, from: Peer, header: wire::Performed) {
        self.pml.on_performed(from, &header);
    }

    fn keepalive(&mut self, from: Peer) {
        self.pml.on_keepalive(from.0);
    }

    #[cold]
    fn given_up(&mut self, from: Peer) {
        self.pml.lost(from, Lost::Broken);
    }

    #[cold]
    fn malformed(&mut self, frame: &Frame) {
        self.pml.counters.malformed = self.pml.counters.malformed.wrapping_add(1);
        self.pml.drop_frame(self.rail, frame);
    }
}
