//! Frames that arrive. Each is handed up once, and counts as received when the checksum of its body is right.

use zerocopy::{FromBytes, FromZeros};

use super::checksum::Checksum;
use super::header::{Header, MIGRATED, MIGRATION, Prefix, TAG, head_check, is_migrated};
use super::numbers::{distance, widen};
use super::path::ConnState;
use super::pending_delivery::{PARTIAL, PendingDelivery, REPEATS, Stage, TAIL};
use super::state::Link;
use crate::convertor::copy_slice;
use crate::rail::{Delivery, Event, Frame, FrameId, FullRail, HEAD, Peer};

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// A frame of the rail below has arrived.
    pub(super) fn on_frame(&mut self, frame: &Frame) -> Option<Event> {
        self.receive.holds_frame = !frame.is_whole();
        let event = self.take_frame(frame);
        if core::mem::take(&mut self.receive.holds_frame) {
            self.below.release(frame.id);
        }
        event
    }

    /// Checks a frame, and processes it. The caller releases the frame unless this clears `holds_frame`.
    fn take_frame(&mut self, frame: &Frame) -> Option<Event> {
        let at = frame.from.0;
        let path = self.peers.paths.get(at as usize).filter(|path| path.session.state != ConnState::Free);
        let Some(path) = path else {
            self.counters.before_handshake = self.counters.before_handshake.wrapping_add(1);
            return None;
        };
        let count = (frame.len as usize).min(HEAD);
        let known = MIGRATION || frame.tag != MIGRATED;
        let head = frame.head.get(..count).filter(|_| known && usize::from(frame.valid) >= count);
        let Some((head, (header, rest))) = head.and_then(|head| Some((head, Header::read_from_prefix(head).ok()?)))
        else {
            self.counters.malformed = self.counters.malformed.wrapping_add(1);
            return None;
        };
        if frame.tag == TAG {
            self.on_control(at, frame.len, &header, head, rest);
            return None;
        }
        if !path.session.is_established() {
            self.counters.before_handshake = self.counters.before_handshake.wrapping_add(1);
            return None;
        }
        let number = widen(header.number.get(), path.receive.base);
        let migrated = is_migrated(frame.tag);
        let ack = if migrated { 0 } else { widen(header.ack.get(), path.send.first) };
        let check = head_check(&self.checksum, path.session.seeds[1], frame.tag, frame.len, [number, ack], head);
        if check != header.head_check.get() {
            self.counters.bad_headers = self.counters.bad_headers.wrapping_add(1);
            return None;
        }
        self.on_heard(at);
        if !migrated {
            self.take_ack(at, ack, 0, &[], false);
            self.check_gaps(at);
        }
        let path = self.peers.paths.get(at as usize)?;
        let behind = distance(number, path.receive.base);
        if behind >= i64::from(self.config.window) {
            self.counters.beyond_window = self.counters.beyond_window.wrapping_add(1);
            return None;
        }
        if self.is_received(at, number) {
            self.on_duplicate(at);
            return None;
        }
        if self.pending_bits(at).has(number) {
            self.on_repeated(at, number, frame);
            return None;
        }
        if let Some(path) = self.peers.paths.get_mut(at as usize)
            && distance(number, path.receive.seen()) >= 0
        {
            path.receive.see(number);
        }
        self.new_frame(at, number, &header, frame, rest)
    }

    /// Processes a frame that has not arrived before.
    fn new_frame(&mut self, at: u32, number: u64, header: &Header, frame: &Frame, rest: &[u8]) -> Option<Event> {
        let Some(pending) = parse_frame(at, number, header, frame, rest) else {
            self.counters.malformed = self.counters.malformed.wrapping_add(1);
            return None;
        };
        if frame.is_whole() {
            self.mark_received(at, number, false);
            return Some(self.event(&pending, FrameId(0), &[]));
        }
        let own = pending.own();
        if own <= HEAD as u64 {
            let mut tail = [0; TAIL];
            let want = (frame.len as usize).saturating_sub(HEAD).min(TAIL);
            let tail = tail.get_mut(..want)?;
            if self.below.read(frame.id, HEAD, tail) == want {
                let checks = self.peers.paths.get(at as usize)?.session.checks_bodies;
                if checks && self.checksum.sum(0, tail) != pending.body_check {
                    self.on_bad_body(at);
                    return None;
                }
                self.mark_received(at, number, false);
                return Some(self.event(&pending, FrameId(0), tail));
            }
        }
        if !PARTIAL && own <= HEAD as u64 {
            self.counters.malformed = self.counters.malformed.wrapping_add(1);
            return None;
        }
        if !self.arrives_right(&pending) {
            self.on_bad_body(at);
            return None;
        }
        let room = self.room_for(at) != 0;
        let Some((handle, place)) = (if room { self.receive.pending.take_uncleared() } else { None }) else {
            self.refuse(at);
            return None;
        };
        *place = pending;
        self.receive.holds_frame = false;
        if let Some(path) = self.peers.paths.get_mut(at as usize) {
            path.receive.pending = path.receive.pending.wrapping_add(1);
        }
        self.pending_bits(at).set(number);
        self.restart_sum(handle);
        if PARTIAL && own <= HEAD as u64 {
            return self.fetch_tail(handle);
        }
        Some(self.event(&pending, FrameId(handle.to_bits()), &[]))
    }

    /// The event for a frame. `tail` are the bytes after the head, if the whole frame is reported.
    pub(super) fn event(&mut self, pending: &PendingDelivery, id: FrameId, tail: &[u8]) -> Event {
        let (before, own) = (pending.before(), pending.own());
        let mut head = [0; HEAD];
        let from = pending.head.get(before..).unwrap_or(&[]);
        let room = head.get_mut(..own.min(HEAD as u64) as usize).unwrap_or_default();
        let in_head = copy_slice(room, from);
        let valid = in_head.wrapping_add(copy_slice(room.get_mut(in_head..).unwrap_or_default(), tail)) as u8;
        let from = Peer(self.peers.paths.get(pending.path as usize).map_or(u32::MAX, |path| path.session.peer));
        let frame = Frame { id, from, tag: pending.tag, valid, len: own as u32, head };
        if MIGRATION && pending.migrated { Event::Migrated(pending.origin(), frame) } else { Event::Frame(frame) }
    }

    /// A frame whose delivery is pending has arrived again.
    fn on_repeated(&mut self, at: u32, number: u64, frame: &Frame) {
        if !REPEATS {
            return self.on_duplicate(at);
        }
        let found = self.record_of(at, number);
        let Some((slot, handle)) = found.and_then(|slot| Some((slot, self.receive.pending.handle(slot)?))) else {
            return;
        };
        let Some(pending) = self.receive.pending.at_mut(slot) else { return };
        let awaited = matches!(pending.stage, Stage::Awaited | Stage::HeldInPart);
        if !awaited || pending.len != frame.len {
            if let Some(path) = self.peers.paths.get_mut(at as usize) {
                path.due.nack = true;
            }
            return self.on_duplicate(at);
        }
        pending.raw = frame.id.0;
        let repeated = *pending;
        if !self.arrives_right(&repeated) {
            return self.on_bad_body(at);
        }
        self.receive.holds_frame = false;
        self.restart_sum(handle);
        if self.receive.pending.at(slot).is_some_and(|pending| pending.stage == Stage::HeldInPart) {
            if let Some(pending) = self.receive.pending.at_mut(slot) {
                pending.stage = Stage::Held;
            }
        } else if self.fill(handle) == Delivery::Done {
            self.queue_delivered(slot);
        }
    }

    /// A frame counts as received. It will be acknowledged soon.
    pub(super) fn mark_received(&mut self, at: u32, number: u64, long: bool) {
        self.counters.received = self.counters.received.wrapping_add(1);
        let any_migrated = self.peers.paths.get(at as usize).is_some_and(|path| path.receive.migrated != 0);
        if MIGRATION && any_migrated && self.is_received(at, number) {
            self.forget_migrated(at, number);
        }
        let news = self.mark(at, number);
        let every = self.config.ack_every;
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return };
        path.due.frames = path.due.frames.wrapping_add(1);
        // A long body stays in the sender's memory until it is acknowledged. So its acknowledgement must not depend on further
        // calls of the reader, which may have all that it wants, and compute. An acknowledgement that reports a new hole, or a
        // filled one, does not wait either.
        if long || news || path.due.frames >= every {
            self.ack_now(at);
        } else {
            self.ack_later(at);
        }
    }

    /// Whether a number counts as received.
    pub(super) fn is_received(&mut self, at: u32, number: u64) -> bool {
        let before = self.peers.paths.get(at as usize).is_some_and(|path| distance(number, path.receive.base) < 0);
        before || self.received_bits(at).has(number)
    }

    /// Marks a number as received. Returns whether there is a new hole before it, or whether it fills the first hole.
    pub(super) fn mark(&mut self, at: u32, number: u64) -> bool {
        let Some(path) = self.peers.paths.get(at as usize) else { return false };
        let (mut base, mut top) = (path.receive.base, path.receive.top);
        if distance(number, base) < 0 {
            return false; // it was skipped
        }
        let news = distance(number, top) > 0 || (path.receive.has_holes() && number == base);
        if distance(number, top) >= 0 {
            top = number.wrapping_add(1);
        }
        let mut bits = self.received_bits(at);
        bits.set(number);
        while base != top && bits.has(base) {
            bits.clear(base);
            base = base.wrapping_add(1);
        }
        if let Some(path) = self.peers.paths.get_mut(at as usize) {
            (path.receive.base, path.receive.top) = (base, top);
        }
        news
    }

    /// A frame has arrived twice.
    fn on_duplicate(&mut self, at: u32) {
        self.counters.duplicates = self.counters.duplicates.wrapping_add(1);
        if let Some(path) = self.peers.paths.get_mut(at as usize) {
            path.due.duplicates = path.due.duplicates.wrapping_add(1);
        }
        self.ack_duplicate(at);
    }
}

/// The record of a frame. `None`: it is a migrated frame, and too short for one.
fn parse_frame(at: u32, number: u64, header: &Header, frame: &Frame, rest: &[u8]) -> Option<PendingDelivery> {
    let migrated = is_migrated(frame.tag);
    let mut pending = PendingDelivery {
        number,
        raw: frame.id.0,
        path: at,
        len: frame.len,
        body_check: header.body_check.get(),
        migrated,
        tag: frame.tag,
        head: frame.head,
        ..PendingDelivery::new_zeroed()
    };
    if migrated {
        let (prefix, _) = Prefix::read_from_prefix(rest).ok()?;
        let origin = prefix.origin(header);
        (pending.tag, pending.origin_link, pending.origin_number) = (prefix.tag, origin.link, origin.number);
    }
    Some(pending)
}
