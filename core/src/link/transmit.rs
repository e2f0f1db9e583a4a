//! The transmission of a kept frame, first or repeated, and the lists of frames in flight and of waiting frames.

use super::checksum::Checksum;
use super::congestion::CongestionWindow;
use super::header::{Header, head_check, is_migrated};
use super::in_flight::{IN_FLIGHT, InFlightFrame, QUEUED, READING, RETRANSMITTED, SENT, Transmit, lane_of, rest};
use super::path::{ConnState, Path};
use super::state::Link;
use crate::convertor::Span;
use crate::rail::{Cookie, FullRail, HEAD, LATER, Lane, SendError, Sent, Shape};

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// Sends a kept frame. It is in no list before, and in the list of frames in flight after `Sent`.
    pub(super) fn transmit(&mut self, slot: u32) -> Transmit {
        match self.submit_below(slot) {
            Ok(Some(sent)) => {
                self.account_transmission(slot, sent);
                Transmit::Sent
            }
            Ok(None) => Transmit::Sent, // there is no such frame
            Err(SendError::Busy) => {
                self.counters.busy = self.counters.busy.wrapping_add(1);
                Transmit::Busy
            }
            Err(_) => Transmit::Unreachable,
        }
    }

    /// Writes the header of a frame, and gives the frame to the rail below.
    fn submit_below(&mut self, slot: u32) -> Result<Option<Sent>, SendError> {
        let (Some(handle), Some(frame)) = (self.send.frames.handle(slot), self.send.frames.at(slot)) else {
            return Ok(None);
        };
        let Some(path) = self.peers.paths.get(frame.path as usize) else { return Ok(None) };
        if !path.below.known {
            return Err(SendError::Unreachable);
        }
        let count = (frame.len as usize).min(HEAD);
        let head = self.send.slots.at(slot);
        encode_header(&self.checksum, frame, path, head);
        // SAFETY: the head is at least `count` bytes long; there is no other reference into it.
        let bytes = unsafe { core::slice::from_raw_parts(head, count) };
        let shape = Shape { tag: frame.tag, lane: lane_of(frame.lane), header: count as u8, len: frame.len };
        let body = if frame.len as usize > HEAD { rest(frame) } else { Span::EMPTY };
        let (to, cookie, summed) = (path.below.endpoint, Cookie(handle.to_bits()), path.session.checks_bodies);
        // SAFETY: the body does not change until it is acknowledged and the rail below no longer reads it.
        unsafe {
            if summed {
                self.below.send_summed(to, shape, bytes, body, cookie)
            } else {
                self.below.send(to, shape, bytes, body, cookie)
            }
        }
        .map(Some)
    }

    /// The rail below has taken a frame.
    fn account_transmission(&mut self, slot: u32, sent: Sent) {
        let now = self.clock.now;
        let Some(frame) = self.send.frames.at_mut(slot) else { return };
        let (at, migrated) = (frame.path, is_migrated(frame.tag));
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return };
        if LATER && sent == Sent::InPlace {
            frame.flags |= READING;
        }
        if frame.flags & SENT == 0 {
            self.counters.sent = self.counters.sent.wrapping_add(1);
        } else {
            frame.flags |= RETRANSMITTED;
            self.counters.resent = self.counters.resent.wrapping_add(1);
        }
        frame.flags |= SENT | IN_FLIGHT;
        path.loss.transmissions = path.loss.transmissions.wrapping_add(1);
        if frame.flags & RETRANSMITTED != 0 && frame.before_probe != 0 {
            path.loss.reordering.excuse(path.loss.transmissions);
        }
        (frame.transmission, frame.sent_at) = (path.loss.transmissions, now);
        path.send.in_flight = path.send.in_flight.wrapping_add(1);
        if !migrated && !path.receive.has_holes() {
            path.due.frames = 0; // the frame has acknowledged them
        }
        let first = path.send.sent.is_empty();
        path.send.sent.push(&mut self.send.frames, slot);
        if first {
            self.set_timer(at);
        }
    }

    /// Sends a frame again, or queues it until there is room. Returns whether it was sent.
    pub(super) fn transmit_or_queue(&mut self, slot: u32) -> bool {
        self.unlist(slot);
        let sent = self.transmit(slot) == Transmit::Sent;
        if !sent {
            self.queue(slot);
        }
        sent
    }

    /// How many frames in flight were sent after `time`. Stops counting at the size of the congestion window.
    pub(super) fn in_flight_since(&self, path: &Path, time: u64) -> u32 {
        let (mut count, mut last) = (0u32, path.send.sent.last().get());
        while count < path.congestion.allowed()
            && let Some(frame) = last.and_then(|slot| self.send.frames.at(slot))
            && frame.sent_at > time
        {
            count = count.wrapping_add(1);
            last = frame.links.prev.get();
        }
        count
    }

    /// Puts a frame at the end of its lane's list of frames that wait.
    pub(super) fn queue(&mut self, slot: u32) {
        let Some(frame) = self.send.frames.at_mut(slot) else { return };
        let (at, lane) = (frame.path, usize::from(frame.lane != Lane::Control as u8));
        frame.flags |= QUEUED;
        if let Some(path) = self.peers.paths.get_mut(at as usize)
            && let Some(list) = path.send.queued.get_mut(lane)
        {
            list.push(&mut self.send.frames, slot);
            self.queue_work(at);
        }
    }

    /// Takes a frame off its list.
    pub(super) fn unlist(&mut self, slot: u32) {
        let Some(frame) = self.send.frames.at_mut(slot) else { return };
        let (at, lane, flags) = (frame.path, usize::from(frame.lane != Lane::Control as u8), frame.flags);
        frame.flags &= !(IN_FLIGHT | QUEUED);
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return };
        if flags & IN_FLIGHT != 0 {
            path.send.sent.remove(&mut self.send.frames, slot);
            path.send.in_flight = path.send.in_flight.wrapping_sub(1);
        } else if flags & QUEUED != 0
            && let Some(list) = path.send.queued.get_mut(lane)
        {
            list.remove(&mut self.send.frames, slot);
        }
    }

    /// Sends the frames that wait, as long as there is room. Returns whether frames are left for which the rail below has no
    /// room.
    pub(super) fn send_queued(&mut self, at: u32) -> bool {
        for lane in 0..2usize {
            loop {
                let Some(path) = self.peers.paths.get(at as usize) else { return false };
                if path.session.state != ConnState::Up {
                    return false;
                }
                let Some(slot) = path.send.queued.get(lane).and_then(|list| list.first().get()) else { break };
                if lane == 1 && !path.has_room() {
                    return false; // the next acknowledgement continues
                }
                self.unlist(slot);
                match self.transmit(slot) {
                    Transmit::Sent => {}
                    Transmit::Busy | Transmit::Unreachable => {
                        // Back to its lane's list. The order in the list matters little.
                        if let Some(frame) = self.send.frames.at_mut(slot) {
                            frame.flags |= QUEUED;
                        }
                        let path = self.peers.paths.get_mut(at as usize);
                        if let Some(list) = path.and_then(|path| path.send.queued.get_mut(lane)) {
                            list.push(&mut self.send.frames, slot);
                        }
                        return true;
                    }
                }
            }
        }
        false
    }

    /// Takes all frames of a peer off the lists, so that none is sent.
    pub(super) fn halt(&mut self, at: u32) {
        let Some(path) = self.peers.paths.get(at as usize) else { return };
        let (mut number, end) = (path.send.first, path.send.next);
        while number != end {
            if let Some(slot) = self.window_slot(at, number) {
                self.unlist(slot);
            }
            number = number.wrapping_add(1);
        }
    }

    /// Sends all frames of a peer again.
    pub(super) fn resume(&mut self, at: u32) {
        let initial = self.config.initial_window;
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return };
        path.congestion = CongestionWindow::new(initial, path.send.window);
        (path.loss.latest, path.loss.probed_at) = (path.loss.transmissions, 0);
        path.liveness.owes_since = if path.send.unacked == 0 { 0 } else { self.clock.now.max(1) };
        let (mut number, end) = (path.send.first, path.send.next);
        while number != end {
            if let Some(slot) = self.window_slot(at, number) {
                self.requeue(at, slot);
            }
            number = number.wrapping_add(1);
        }
        if self.send_queued(at) {
            self.queue_work(at);
        }
    }

    /// Queues a frame for transmission, unless the rail below is still sending it.
    fn requeue(&mut self, at: u32, slot: u32) {
        self.unlist(slot); // a frame that was committed after the link went down waits already
        if let Some(frame) = self.send.frames.at_mut(slot) {
            frame.before_probe = 0;
        }
        if self.send.frames.at(slot).is_none_or(|frame| frame.flags & READING == 0) {
            return self.queue(slot);
        }
        let now = self.clock.now;
        if let (Some(path), Some(frame)) = (self.peers.paths.get_mut(at as usize), self.send.frames.at_mut(slot)) {
            frame.flags |= IN_FLIGHT;
            path.loss.transmissions = path.loss.transmissions.wrapping_add(1);
            (frame.transmission, frame.sent_at) = (path.loss.transmissions, now);
            path.send.in_flight = path.send.in_flight.wrapping_add(1);
            path.send.sent.push(&mut self.send.frames, slot);
        }
    }
}

/// Writes the link's header to the start of a frame's slot, which is `HEAD_ROOM` bytes long.
fn encode_header<C: Checksum>(checksum: &C, frame: &InFlightFrame, path: &Path, head: *mut u8) {
    let count = (frame.len as usize).min(HEAD);
    // A migrated frame acknowledges nothing: that field has its number on the link that it was given to first.
    let migrated = is_migrated(frame.tag);
    let ack = if migrated { 0 } else { path.receive.base };
    let told = if migrated { (frame.origin_number >> 16) as u16 } else { ack as u16 };
    let mut header = Header {
        number: (frame.number as u16).into(),
        ack: told.into(),
        head_check: 0.into(),
        body_check: frame.body_check.into(),
    };
    // SAFETY: the head is at least `count` bytes long; there is no other reference into it.
    let bytes = unsafe {
        head.cast::<Header>().write_unaligned(header);
        core::slice::from_raw_parts(head, count)
    };
    let seed = path.session.seeds[0];
    header.head_check = head_check(checksum, seed, frame.tag, frame.len, [frame.number, ack], bytes).into();
    // SAFETY: as above; the slice from before is not used any more.
    unsafe { head.cast::<Header>().write_unaligned(header) };
}
