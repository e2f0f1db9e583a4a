//! Frames that migrate between links: frames of this link while it is down, and frames that another link has brought.

use super::checksum::Checksum;
use super::header::{HEADER, MIGRATED, PREFIX};
use super::in_flight::{GAP, IN_PLACE, InFlightFrame, MIGRATED_ENTRY, lane_of};
use super::numbers::{distance, widen_word};
use super::path::ConnState;
use super::pending_delivery::{PendingDelivery, Stage};
use super::state::Link;
use crate::rail::{Claim, Cookie, Endpoint, FrameId, FullRail, LINKED_HEAD, Origin, Shape, UnackedFrame};

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// The oldest frame of a link that is down, for another link to carry.
    pub(super) fn oldest_unacked(&self, to: Endpoint) -> Option<UnackedFrame> {
        let path = self.peers.paths.get(to.0 as usize)?;
        if !matches!(path.session.state, ConnState::Down | ConnState::Closed) {
            return None;
        }
        let slot = self.oldest(to.0)?;
        let frame = self.send.frames.at(slot)?;
        let migrated = frame.tag == MIGRATED;
        let origin = self.origin_of(frame);
        let own = (frame.len as usize).wrapping_sub(HEADER).wrapping_sub(if migrated { PREFIX } else { 0 });
        let mut header = [0; LINKED_HEAD];
        let from = self.send.slots.at(slot).wrapping_add(if migrated { HEADER + PREFIX } else { HEADER });
        // SAFETY: the slot begins with HEAD_ROOM bytes, in which LINKED_HEAD bytes follow the link's own header and prefix.
        unsafe {
            core::ptr::copy_nonoverlapping(from, header.as_mut_ptr(), usize::from(frame.header).min(LINKED_HEAD));
        }
        let shape = Shape { tag: frame.own_tag, lane: lane_of(frame.lane), header: frame.header, len: own as u32 };
        let cookie = (frame.flags & IN_PLACE != 0).then_some(Cookie(frame.cookie));
        Some(UnackedFrame { origin, shape, header, body: frame.body, cookie })
    }

    fn origin_of(&self, frame: &InFlightFrame) -> Origin {
        match frame.tag {
            MIGRATED => Origin { link: frame.origin_link, number: frame.origin_number },
            _ => Origin { link: self.config.link, number: frame.number as u32 },
        }
    }

    /// Another link has sent a frame of this one. The frame's number stays in use until the peer acknowledges it. The peer
    /// counts the number as received when the migrated frame is claimed. If the frame has another link as its origin, the peer
    /// counts the number as received when this link reports it as a gap.
    pub(super) fn mark_migrated(&mut self, to: Endpoint, origin: Origin) {
        let at = to.0;
        let Some(slot) = self.oldest(at) else { return };
        let frame = self.send.frames.at(slot).copied().filter(|frame| self.origin_of(frame) == origin);
        let Some(frame) = frame else { return };
        let number = frame.number;
        if let Some(frame) = self.send.frames.at_mut(slot) {
            frame.flags &= !IN_PLACE; // the link that carries the frame now reports `Event::Sent`
        }
        self.unlist(slot);
        if let Some(entry) = self.window_entry_mut(at, number) {
            // A frame that migrated here has another link as its origin. So no claim names the number that it has on this link.
            *entry = if frame.tag == MIGRATED { GAP } else { MIGRATED_ENTRY };
        }
        self.count(at, frame.is_control(), -1);
        if let Some(path) = self.peers.paths.get_mut(at as usize) {
            path.send.oldest = number.wrapping_add(1);
        }
        self.counters.migrated = self.counters.migrated.wrapping_add(1);
        self.finish_frame(slot);
    }

    /// This link's knowledge of a frame that another link has brought.
    pub(super) fn claim_frame(&mut self, from: Endpoint, origin: Origin) -> Option<Claim> {
        let at = from.0;
        let path = self.peers.paths.get(at as usize)?;
        if path.session.state == ConnState::Free || !path.session.is_established() {
            return None;
        }
        let own = (path.session.remote_link == origin.link).then(|| widen_word(origin.number, path.receive.base));
        let own = own.and_then(|number| self.claim_own(at, number));
        let claim = match own {
            Some(Claim::Awaited { .. }) => own,
            // The frame may have migrated here, also back to the link that it was given to first.
            _ => self.claim_migrated(at, origin).or(own),
        };
        self.counters.claims = self.counters.claims.wrapping_add(u64::from(claim.is_some()));
        claim
    }

    /// Claims a frame that migrated to this link.
    fn claim_migrated(&mut self, at: u32, origin: Origin) -> Option<Claim> {
        // A frame that the reader has just got is no evidence, since it may be the one that the reader asks about.
        let waits = |stage| !matches!(stage, Stage::Held | Stage::HeldInPart | Stage::Done);
        let of = |pending: &PendingDelivery| {
            pending.path == at && pending.migrated && pending.origin() == origin && waits(pending.stage)
        };
        let pending = &self.receive.pending;
        let slot = (0..pending.touched()).find(|slot| pending.at(*slot).is_some_and(of))?;
        // Only the link that the frame was given to first knows whether it was received before. A link that carried it does not
        // know.
        self.claim_record(slot).filter(|claim| matches!(claim, Claim::Awaited { .. }))
    }

    /// Claims a frame that was given to this link first.
    fn claim_own(&mut self, at: u32, number: u64) -> Option<Claim> {
        let path = self.peers.paths.get(at as usize)?;
        let behind = distance(number, path.receive.base);
        if behind >= i64::from(self.config.window) {
            return None; // no frame with that number can have been sent
        }
        let received = self.is_received(at, number);
        if received && !self.is_migrated(at, number) {
            return Some(Claim::Duplicate);
        }
        let begun = received || self.pending_bits(at).has(number);
        if let Some(slot) = if begun { self.record_of(at, number) } else { None } {
            return self.claim_record(slot);
        }
        self.mark_received(at, number, false);
        Some(Claim::New)
    }

    pub(super) fn record_of(&self, at: u32, number: u64) -> Option<u32> {
        let of = |pending: &PendingDelivery| pending.path == at && pending.number == number;
        let pending = &self.receive.pending;
        (0..pending.touched()).find(|slot| pending.at(*slot).is_some_and(of))
    }

    /// A number is skipped although a delivery of its frame is pending. The delivery goes on without the number.
    pub(super) fn skip_record(&mut self, at: u32, number: u64) {
        if let Some(pending) = self.record_of(at, number).and_then(|slot| self.receive.pending.at_mut(slot)) {
            pending.skipped = true;
        }
        self.pending_bits(at).clear(number);
    }

    /// Hands a pending delivery over to the link that asks.
    fn claim_record(&mut self, slot: u32) -> Option<Claim> {
        let handle = self.receive.pending.handle(slot)?;
        let mut pending = self.receive.pending.at(slot).copied()?;
        if matches!(pending.stage, Stage::ToSink | Stage::ToScratch | Stage::Tail) {
            // The rail below may write to the sink until it has deleted the peer.
            self.restart_below(pending.path);
            match self.receive.pending.get(handle) {
                Some(after) => pending = *after,
                None => {
                    // It was a short frame, which was not reported to the reader yet.
                    self.mark_received(pending.path, pending.number, false);
                    return Some(Claim::New);
                }
            }
        }
        let claim = match pending.stage {
            Stage::Awaited | Stage::WaitsForScratch => {
                if pending.stage == Stage::WaitsForScratch {
                    self.below.release(FrameId(pending.raw));
                }
                Claim::Awaited { skip: pending.skip as usize, sink: pending.sink, cookie: Cookie(pending.cookie) }
            }
            // The frame has arrived completely. Or the reader holds it; then the reader must not ask.
            _ => return Some(Claim::Duplicate),
        };
        self.mark_received(pending.path, pending.number, false);
        self.finish_delivery(handle);
        Some(claim)
    }
}
