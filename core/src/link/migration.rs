//! Frames that move between links: those of a link that is down, and those that another link has brought.

use super::checksum::Checksum;
use super::header::{HEADER, MOVED, PREFIX};
use super::in_flight::{AWAY, IN_PLACE, Kept, VOID, lane_of};
use super::numbers::{distance, widen_word};
use super::path::State;
use super::pending_delivery::{Coming, Stage};
use super::state::Link;
use crate::rail::{Claim, Cookie, Endpoint, FrameId, FullRail, LINKED_HEAD, Origin, Shape, UnackedFrame};

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// The oldest frame of a link that is down, for another one to carry.
    pub(super) fn orphan_of(&self, to: Endpoint) -> Option<UnackedFrame> {
        let path = self.paths.get(to.0 as usize)?;
        if !matches!(path.state, State::Down | State::Closed) {
            return None;
        }
        let slot = self.oldest(to.0)?;
        let kept = self.kept.at(slot)?;
        let moved = kept.tag == MOVED;
        let origin = self.origin(kept);
        let own = (kept.len as usize).wrapping_sub(HEADER).wrapping_sub(if moved { PREFIX } else { 0 });
        let mut header = [0; LINKED_HEAD];
        let from = self.slots.at(slot).wrapping_add(if moved { HEADER + PREFIX } else { HEADER });
        // SAFETY: a header of up to LINKED_HEAD bytes stands there, in the slot's head.
        unsafe {
            core::ptr::copy_nonoverlapping(from, header.as_mut_ptr(), usize::from(kept.header).min(LINKED_HEAD));
        }
        let shape = Shape { tag: kept.own_tag, lane: lane_of(kept.lane), header: kept.header, len: own as u32 };
        let cookie = (kept.flags & IN_PLACE != 0).then_some(Cookie(kept.cookie));
        Some(UnackedFrame { origin, shape, header, body: kept.body, cookie })
    }

    pub(super) fn origin(&self, kept: &Kept) -> Origin {
        match kept.tag {
            MOVED => Origin { link: kept.origin_link, number: kept.origin_number },
            _ => Origin { link: self.config.link, number: kept.number as u32 },
        }
    }

    /// A frame has left by another link. Its number stays taken until it is acknowledged: the peer takes it for received when the
    /// frame claims it, or, of one that names another link as its origin, when it is told that the number is void.
    pub(super) fn rehome(&mut self, to: Endpoint, origin: Origin) {
        let at = to.0;
        let Some(slot) = self.oldest(at) else { return };
        let Some(kept) = self.kept.at(slot).copied().filter(|kept| self.origin(kept) == origin) else { return };
        let number = kept.number;
        if let Some(kept) = self.kept.at_mut(slot) {
            kept.flags &= !IN_PLACE; // whoever carries it now tells of its body
        }
        self.take_off(slot);
        if let Some(entry) = self.window_mut(at, number) {
            // One that was moved here has another link's number as its origin, so nobody claims the one that it has here.
            *entry = if kept.tag == MOVED { VOID } else { AWAY };
        }
        self.count(at, kept.is_control(), -1);
        if let Some(path) = self.paths.get_mut(at as usize) {
            path.oldest = number.wrapping_add(1);
        }
        self.counters.migrated = self.counters.migrated.wrapping_add(1);
        self.over(slot);
    }

    /// What is known here of a frame that another link has brought.
    pub(super) fn claim_of(&mut self, from: Endpoint, origin: Origin) -> Option<Claim> {
        let at = from.0;
        let path = self.paths.get(at as usize).filter(|path| path.state != State::Free && path.met())?;
        let own = (path.their_link == origin.link).then(|| widen_word(origin.number, path.base));
        let own = own.and_then(|number| self.claim_own(at, number));
        let claim = match own {
            Some(Claim::Awaited { .. }) => own,
            // It may have moved here, also back to the link that it was given to first.
            _ => self.claim_moved(at, origin).or(own),
        };
        self.counters.claims = self.counters.claims.wrapping_add(u64::from(claim.is_some()));
        claim
    }

    pub(super) fn claim_moved(&mut self, at: u32, origin: Origin) -> Option<Claim> {
        // One that the reader has just got, perhaps that about which it asks, says nothing.
        let waits = |stage| !matches!(stage, Stage::Held | Stage::HeldInPart | Stage::Done);
        let of =
            |coming: &Coming| coming.path == at && coming.moved && coming.origin() == origin && waits(coming.stage);
        let slot = (0..self.coming.touched()).find(|slot| self.coming.at(*slot).is_some_and(of))?;
        // Whether it has come before is for the link to tell that it was given to first, not for one that carried it.
        self.claim_record(slot).filter(|claim| matches!(claim, Claim::Awaited { .. }))
    }

    pub(super) fn claim_own(&mut self, at: u32, number: u64) -> Option<Claim> {
        let path = self.paths.get(at as usize)?;
        let behind = distance(number, path.base);
        if behind >= i64::from(self.config.window) {
            return None; // it cannot have been sent
        }
        let passed = self.is_passed(at, number);
        if passed && !self.is_away(at, number) {
            return Some(Claim::Duplicate);
        }
        let begun = passed || self.busy_bits(at).has(number);
        if let Some(slot) = if begun { self.record_of(at, number) } else { None } {
            return self.claim_record(slot);
        }
        self.receive(at, number, false);
        Some(Claim::New)
    }

    pub(super) fn record_of(&self, at: u32, number: u64) -> Option<u32> {
        let of = |coming: &Coming| coming.path == at && coming.number == number;
        (0..self.coming.touched()).find(|slot| self.coming.at(*slot).is_some_and(of))
    }

    /// A number is passed over of which a part is here: the record goes on without it.
    pub(super) fn pass_record(&mut self, at: u32, number: u64) {
        if let Some(coming) = self.record_of(at, number).and_then(|slot| self.coming.at_mut(slot)) {
            coming.passed = true;
        }
        self.busy_bits(at).clear(number);
    }

    /// Hands a delivery over to whoever asks.
    pub(super) fn claim_record(&mut self, slot: u32) -> Option<Claim> {
        let handle = self.coming.handle(slot)?;
        let mut coming = self.coming.at(slot).copied()?;
        if matches!(coming.stage, Stage::Coming | Stage::InScratch | Stage::Tail) {
            // The rail below may write to the sink until it forgets the peer.
            self.start_over_below(coming.path);
            match self.coming.get(handle) {
                Some(after) => coming = *after,
                None => {
                    // A short one, of which nobody has heard.
                    self.receive(coming.path, coming.number, false);
                    return Some(Claim::New);
                }
            }
        }
        let claim = match coming.stage {
            Stage::Awaited | Stage::ForScratch => {
                if coming.stage == Stage::ForScratch {
                    self.raw.release(FrameId(coming.raw));
                }
                Claim::Awaited { skip: coming.skip as usize, sink: coming.sink, cookie: Cookie(coming.cookie) }
            }
            // All of it has come; or the reader has it, which is not to ask then.
            _ => return Some(Claim::Duplicate),
        };
        self.receive(coming.path, coming.number, false);
        self.finish(handle);
        Some(claim)
    }
}
