//! Frames that arrive: each is handed up once, and counts as received when its body has passed its check.

use zerocopy::{FromBytes, FromZeros};

use super::checksum::Checksum;
use super::header::{Header, MOVED, Prefix, TAG, head_check};
use super::numbers::{distance, widen};
use super::path::State;
use super::pending_delivery::{Coming, Stage, TAIL};
use super::state::Link;
use crate::rail::{Delivery, Event, Frame, FrameId, FullRail, HEAD, Peer};

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// A frame of the rail below.
    pub(super) fn on_frame(&mut self, frame: &Frame) -> Option<Event> {
        self.holds = !frame.is_whole();
        let event = self.take_frame(frame);
        if core::mem::take(&mut self.holds) {
            self.raw.release(frame.id);
        }
        event
    }

    /// As above; the frame is given back unless `holds` is cleared.
    pub(super) fn take_frame(&mut self, frame: &Frame) -> Option<Event> {
        let at = frame.from.0;
        let Some(path) = self.paths.get(at as usize).filter(|path| path.state != State::Free) else {
            self.counters.early = self.counters.early.wrapping_add(1);
            return None;
        };
        let count = (frame.len as usize).min(HEAD);
        let head = frame.head.get(..count).filter(|_| usize::from(frame.valid) >= count);
        let Some((head, (header, rest))) = head.and_then(|head| Some((head, Header::read_from_prefix(head).ok()?)))
        else {
            self.counters.malformed = self.counters.malformed.wrapping_add(1);
            return None;
        };
        if frame.tag == TAG {
            self.on_own(at, frame.len, &header, head, rest);
            return None;
        }
        if !path.met() {
            self.counters.early = self.counters.early.wrapping_add(1);
            return None;
        }
        let number = widen(header.number.get(), path.base);
        let moved = frame.tag == MOVED;
        let ack = if moved { 0 } else { widen(header.ack.get(), path.first) };
        let check = head_check(&self.sums, path.seeds[1], frame.tag, frame.len, [number, ack], head);
        if check != header.head_check.get() {
            self.counters.bad_heads = self.counters.bad_heads.wrapping_add(1);
            return None;
        }
        self.heard(at);
        if !moved {
            self.take_ack(at, ack, 0, &[], false);
            self.see_voids(at);
        }
        let path = self.paths.get(at as usize)?;
        let behind = distance(number, path.base);
        if behind >= i64::from(self.config.window) {
            self.counters.beyond = self.counters.beyond.wrapping_add(1);
            return None;
        }
        if self.is_passed(at, number) {
            self.double(at);
            return None;
        }
        if self.busy_bits(at).has(number) {
            self.once_more(at, number, frame);
            return None;
        }
        self.see(at, number);
        self.new_frame(at, number, &header, frame, rest)
    }

    pub(super) fn see(&mut self, at: u32, number: u64) {
        if let Some(path) = self.paths.get_mut(at as usize)
            && distance(number, path.seen()) >= 0
        {
            path.seen = number.wrapping_add(1) as u16;
        }
    }

    /// A frame that did not come before.
    pub(super) fn new_frame(
        &mut self,
        at: u32,
        number: u64,
        header: &Header,
        frame: &Frame,
        rest: &[u8],
    ) -> Option<Event> {
        let moved = frame.tag == MOVED;
        let mut coming = Coming {
            number,
            raw: frame.id.0,
            path: at,
            len: frame.len,
            body_check: header.body_check.get(),
            moved,
            tag: frame.tag,
            head: frame.head,
            ..Coming::new_zeroed()
        };
        if moved {
            let Ok((prefix, _)) = Prefix::read_from_prefix(rest) else {
                self.counters.malformed = self.counters.malformed.wrapping_add(1);
                return None;
            };
            let origin = prefix.origin(header);
            (coming.tag, coming.origin_link, coming.origin_number) = (prefix.tag, origin.link, origin.number);
        }
        if frame.is_whole() {
            self.receive(at, number, false);
            return Some(self.event(&coming, FrameId(0), &[]));
        }
        let own = coming.own();
        if own <= HEAD as u64 {
            let mut tail = [0; TAIL];
            let want = (frame.len as usize).saturating_sub(HEAD).min(TAIL);
            let tail = tail.get_mut(..want)?;
            if self.raw.read(frame.id, HEAD, tail) == want {
                let sums = self.paths.get(at as usize)?.sums;
                if sums && self.sums.sum(0, tail) != coming.body_check {
                    self.bad_body(at);
                    return None;
                }
                self.receive(at, number, false);
                return Some(self.event(&coming, FrameId(0), tail));
            }
        }
        let room = self.room_for(at) != 0;
        let Some((handle, place)) = (if room { self.coming.take_used() } else { None }) else {
            self.refuse(at);
            return None;
        };
        *place = coming;
        self.holds = false;
        if let Some(path) = self.paths.get_mut(at as usize) {
            path.coming = path.coming.wrapping_add(1);
        }
        self.busy_bits(at).set(number);
        self.restart_sum(handle);
        if own <= HEAD as u64 {
            return self.fetch_tail(handle);
        }
        Some(self.event(&coming, FrameId(handle.to_bits()), &[]))
    }

    /// What the reader gets of a frame, whose bytes behind a head are `tail`.
    pub(super) fn event(&mut self, coming: &Coming, id: FrameId, tail: &[u8]) -> Event {
        let (before, own) = (coming.before(), coming.own());
        let mut head = [0; HEAD];
        let from = coming.head.get(before..).unwrap_or(&[]).iter().chain(tail);
        let mut valid = 0u8;
        for (to, from) in head.iter_mut().zip(from).take(own.min(HEAD as u64) as usize) {
            *to = *from;
            valid = valid.wrapping_add(1);
        }
        let from = Peer(self.paths.get(coming.path as usize).map_or(u32::MAX, |path| path.peer));
        let frame = Frame { id, from, tag: coming.tag, valid, len: own as u32, head };
        if coming.moved { Event::Migrated(coming.origin(), frame) } else { Event::Frame(frame) }
    }

    /// A frame that is under way here has come again.
    pub(super) fn once_more(&mut self, at: u32, number: u64, frame: &Frame) {
        let found = self.record_of(at, number);
        let Some((slot, handle)) = found.and_then(|slot| Some((slot, self.coming.handle(slot)?))) else { return };
        let Some(coming) = self.coming.at_mut(slot) else { return };
        let wanted = matches!(coming.stage, Stage::Awaited | Stage::HeldInPart);
        if !wanted || coming.len != frame.len {
            if let Some(path) = self.paths.get_mut(at as usize) {
                path.wants = true;
            }
            return self.double(at);
        }
        coming.raw = frame.id.0;
        self.holds = false;
        self.restart_sum(handle);
        if self.coming.at(slot).is_some_and(|coming| coming.stage == Stage::HeldInPart) {
            if let Some(coming) = self.coming.at_mut(slot) {
                coming.stage = Stage::Held;
            }
        } else if self.fill(handle) == Delivery::Done {
            self.tell(slot);
        }
    }

    /// A frame counts as received; its sender is told soon.
    pub(super) fn receive(&mut self, at: u32, number: u64, long: bool) {
        self.counters.received = self.counters.received.wrapping_add(1);
        if self.paths.get(at as usize).is_some_and(|path| path.away != 0) && self.is_passed(at, number) {
            self.not_away(at, number);
        }
        let news = self.mark(at, number);
        let every = self.config.ack_every;
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        path.owed = path.owed.wrapping_add(1);
        // A long body stays where it is until it is acknowledged, and whoever waits for that must not depend on further calls
        // here: the reader may have all it wanted, and compute. Nor does it wait where something is lost, or found.
        if long || news || path.owed >= every {
            self.ack_now(at);
        } else {
            self.ack_later(at);
        }
    }

    /// Whether a number counts as received.
    pub(super) fn is_passed(&mut self, at: u32, number: u64) -> bool {
        let before = self.paths.get(at as usize).is_some_and(|path| distance(number, path.base) < 0);
        before || self.received_bits(at).has(number)
    }

    /// Whether there is a new gap before this one, or it fills one.
    pub(super) fn mark(&mut self, at: u32, number: u64) -> bool {
        let Some(path) = self.paths.get(at as usize) else { return false };
        let (mut base, mut top) = (path.base, path.top);
        if distance(number, base) < 0 {
            return false; // it was passed over
        }
        let news = distance(number, top) > 0 || (path.has_holes() && number == base);
        if distance(number, top) >= 0 {
            top = number.wrapping_add(1);
        }
        let mut bits = self.received_bits(at);
        bits.set(number);
        while base != top && bits.has(base) {
            bits.clear(base);
            base = base.wrapping_add(1);
        }
        if let Some(path) = self.paths.get_mut(at as usize) {
            (path.base, path.top) = (base, top);
        }
        news
    }

    pub(super) fn double(&mut self, at: u32) {
        self.counters.doubles = self.counters.doubles.wrapping_add(1);
        if let Some(path) = self.paths.get_mut(at as usize) {
            path.doubles = path.doubles.wrapping_add(1);
        }
        self.ack_repeated(at);
    }
}
