//! How a kept frame leaves, for the first time or again.

use super::checksum::Checksum;
use super::congestion::Window;
use super::header::{Header, MOVED, head_check};
use super::in_flight::{LEFT, Left, List, READING, RESENT, UNDER_WAY, WAITS, lane_of, rest};
use super::path::{Path, State};
use super::state::Link;
use crate::convertor::Span;
use crate::rail::{Cookie, FullRail, HEAD, Lane, SendError, Sent, Shape};

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// Sends a kept frame, whatever it was before.
    pub(super) fn leave(&mut self, slot: u32) -> Left {
        let (Some(handle), Some(kept)) = (self.kept.handle(slot), self.kept.at(slot)) else { return Left::Yes };
        let Some(path) = self.paths.get(kept.path as usize) else { return Left::Yes };
        if !path.raw_known {
            return Left::Unreachable;
        }
        // A moved frame acknowledges nothing: the place is for its number on the link that it was given to first.
        let moved = kept.tag == MOVED;
        let (at, raw, ack) = (kept.path, path.raw, if moved { 0 } else { path.base });
        let told = if moved { (kept.origin_number >> 16) as u16 } else { ack as u16 };
        let count = (kept.len as usize).min(HEAD);
        let head = self.slots.at(slot);
        let mut header = Header {
            number: (kept.number as u16).into(),
            ack: told.into(),
            head_check: 0.into(),
            body_check: kept.body_check.into(),
        };
        // SAFETY: the head is as long; nobody else has a reference into it.
        let bytes = unsafe {
            head.cast::<Header>().write_unaligned(header);
            core::slice::from_raw_parts(head, count)
        };
        header.head_check = head_check(&self.sums, path.seeds[0], kept.tag, kept.len, [kept.number, ack], bytes).into();
        // SAFETY: as above; the slice from before is not used any more.
        let bytes = unsafe {
            head.cast::<Header>().write_unaligned(header);
            core::slice::from_raw_parts(head, count)
        };
        let shape = Shape { tag: kept.tag, lane: lane_of(kept.lane), header: count as u8, len: kept.len };
        let body = if kept.len as usize > HEAD { rest(kept) } else { Span::EMPTY };
        let (cookie, summed) = (Cookie(handle.to_bits()), path.sums);
        // SAFETY: the body stays as it is until it is acknowledged and the rail below reads it no more.
        let sent = match unsafe {
            if summed {
                self.raw.send_summed(raw, shape, bytes, body, cookie)
            } else {
                self.raw.send(raw, shape, bytes, body, cookie)
            }
        } {
            Ok(sent) => sent,
            Err(SendError::Busy) => {
                self.counters.busy = self.counters.busy.wrapping_add(1);
                return Left::Busy;
            }
            Err(_) => return Left::Unreachable,
        };
        let now = self.now;
        let (Some(kept), Some(path)) = (self.kept.at_mut(slot), self.paths.get_mut(at as usize)) else {
            return Left::Yes;
        };
        if sent == Sent::InPlace {
            kept.flags |= READING;
        }
        if kept.flags & LEFT == 0 {
            self.counters.sent = self.counters.sent.wrapping_add(1);
        } else {
            kept.flags |= RESENT;
            self.counters.resent = self.counters.resent.wrapping_add(1);
        }
        kept.flags |= LEFT | UNDER_WAY;
        path.left = path.left.wrapping_add(1);
        if kept.flags & RESENT != 0 && kept.sure != 0 {
            path.overtaking.excuse(path.left);
        }
        (kept.left, kept.left_at) = (path.left, now);
        path.in_flight = path.in_flight.wrapping_add(1);
        if !moved && !path.has_holes() {
            path.owed = 0; // it went with this
        }
        let first = path.sent.is_empty();
        path.sent.push(&mut self.kept, slot);
        if first {
            self.set_timer(at);
        }
        Left::Yes
    }

    /// Sends a frame again that is kept, or has it wait for room. Whether it left.
    pub(super) fn leave_or_wait(&mut self, slot: u32) -> bool {
        self.take_off(slot);
        let left = self.leave(slot) == Left::Yes;
        if !left {
            self.wait(slot);
        }
        left
    }

    /// Frames under way that left after that time; no more of them are counted than may be.
    pub(super) fn left_since(&self, path: &Path, time: u64) -> u32 {
        let (mut count, mut last) = (0u32, path.sent.last());
        while count < path.congestion.allowed()
            && let Some(kept) = last.and_then(|slot| self.kept.at(slot))
            && kept.left_at > time
        {
            count = count.wrapping_add(1);
            last = kept.previous.checked_sub(1);
        }
        count
    }

    /// Puts a frame at the end of those that are to leave.
    pub(super) fn wait(&mut self, slot: u32) {
        let Some(kept) = self.kept.at_mut(slot) else { return };
        let (at, lane) = (kept.path, usize::from(kept.lane != Lane::Control as u8));
        kept.flags |= WAITS;
        if let Some(path) = self.paths.get_mut(at as usize)
            && let Some(list) = path.waiting.get_mut(lane)
        {
            list.push(&mut self.kept, slot);
            self.work_later(at);
        }
    }

    pub(super) fn take_off(&mut self, slot: u32) {
        let Some(kept) = self.kept.at_mut(slot) else { return };
        let (at, lane, flags) = (kept.path, usize::from(kept.lane != Lane::Control as u8), kept.flags);
        kept.flags &= !(UNDER_WAY | WAITS);
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        if flags & UNDER_WAY != 0 {
            path.sent.remove(&mut self.kept, slot);
            path.in_flight = path.in_flight.wrapping_sub(1);
        } else if flags & WAITS != 0
            && let Some(list) = path.waiting.get_mut(lane)
        {
            list.remove(&mut self.kept, slot);
        }
    }

    /// Sends what has to leave, as far as there is room. Whether something is left for which there is none below.
    pub(super) fn flush(&mut self, at: u32) -> bool {
        for lane in 0..2usize {
            loop {
                let Some(path) = self.paths.get(at as usize) else { return false };
                if path.state != State::Up {
                    return false;
                }
                let Some(slot) = path.waiting.get(lane).and_then(List::first) else { break };
                if lane == 1 && !path.has_room() {
                    return false; // goes on with the next ack
                }
                self.take_off(slot);
                match self.leave(slot) {
                    Left::Yes => {}
                    Left::Busy | Left::Unreachable => {
                        // Back to where it was: the list's order matters little, its lane does.
                        if let Some(kept) = self.kept.at_mut(slot) {
                            kept.flags |= WAITS;
                        }
                        if let Some(list) = self.paths.get_mut(at as usize).and_then(|path| path.waiting.get_mut(lane))
                        {
                            list.push(&mut self.kept, slot);
                        }
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Takes all kept frames off the lists: nothing leaves any more.
    pub(super) fn halt(&mut self, at: u32) {
        let Some(path) = self.paths.get(at as usize) else { return };
        let (mut number, end) = (path.first, path.next);
        while number != end {
            if let Some(slot) = self.window(at, number) {
                self.take_off(slot);
            }
            number = number.wrapping_add(1);
        }
    }

    /// All that is kept leaves again.
    pub(super) fn resume(&mut self, at: u32) {
        let initial = self.config.initial_window;
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        (path.timeouts, path.congestion) = (0, Window::new(initial, path.window));
        (path.latest, path.asked_at) = (path.left, 0);
        path.owes_since = if path.kept == 0 { 0 } else { self.now.max(1) };
        let (mut number, end) = (path.first, path.next);
        while number != end {
            if let Some(slot) = self.window(at, number) {
                self.revive(at, slot);
            }
            number = number.wrapping_add(1);
        }
        if self.flush(at) {
            self.work_later(at);
        }
    }

    pub(super) fn revive(&mut self, at: u32, slot: u32) {
        self.take_off(slot); // one that was committed after the link went down waits already
        if let Some(kept) = self.kept.at_mut(slot) {
            kept.sure = 0;
        }
        if self.kept.at(slot).is_none_or(|kept| kept.flags & READING == 0) {
            return self.wait(slot);
        }
        // The rail below is still at it.
        let now = self.now;
        if let (Some(path), Some(kept)) = (self.paths.get_mut(at as usize), self.kept.at_mut(slot)) {
            kept.flags |= UNDER_WAY;
            path.left = path.left.wrapping_add(1);
            (kept.left, kept.left_at) = (path.left, now);
            path.in_flight = path.in_flight.wrapping_add(1);
            path.sent.push(&mut self.kept, slot);
        }
    }
}
