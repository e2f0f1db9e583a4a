//! A poll: it processes completions, acts on failures, hellos and requests, runs due actions, and returns an event to the engine.

use towline_core::rail::{Event, Frame, FrameId, HEAD, Lost};
use towline_core::time::Instant;

use super::peer::ConnState;
use super::receive::HeldFrame;
use super::state::Rail;
use crate::bookkeeping::pending_events::{PendingEvent, ReceivedFrame};

impl Rail {
    #[inline]
    pub(super) fn progress(&mut self, now: Instant) -> Option<Event> {
        self.now = now;
        if self.armed {
            self.armed = false;
            self.queues.completions.take_notifications();
        }
        if (self.receive.pending.is_empty() || self.holds_most())
            && !self.process_completions()
            && self.receive.has_to_post()
        {
            self.receive.post_all(&self.queues);
        }
        if self.has_work() {
            self.do_work();
        }
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.timers.tails) || (self.timers.tails.is_some() && self.send.resources.are_few()) {
            self.check_tails();
        }
        if due(self.timers.hellos) {
            self.send_due_hellos();
        }
        if due(self.timers.keepalive) {
            self.send_keepalives();
        }
        if due(self.closing.check_at()) {
            self.destroy_closing();
        }
        self.next_event()
    }

    /// Whether the engine holds as many frames as it may.
    const fn holds_most(&self) -> bool {
        self.receive.held_count() >= self.attributes.frames_kept
    }

    /// Whether there is something for [`do_work`](Self::do_work).
    #[inline]
    pub(super) fn has_work(&self) -> bool {
        !self.lists.requested.is_empty()
            || !self.lists.failed.is_empty()
            || !self.hellos.received.is_empty()
            || self.health.fault.is_some()
            || self.hellos.can_reset()
    }

    /// Acts on failures, received hellos and requested connections.
    #[cold]
    pub(super) fn do_work(&mut self) {
        if self.hellos.can_reset()
            && let Err(why) = self.hellos.reset(&self.queues)
        {
            log::error!("verbs link {}: the queue pair of hellos cannot be reset: {why}", self.config.link);
            self.health.fail("its queue pair of hellos has failed");
        }
        if let Some(why) = self.health.fault.take() {
            self.die(why);
        }
        while let Some(endpoint) = self.lists.failed.pop() {
            self.lose(endpoint, Lost::Broken);
        }
        while let Some(hello) = self.hellos.received.pop_front() {
            self.handle_hello(&hello);
        }
        while let Some(endpoint) = self.lists.requested.pop() {
            self.begin_handshake(endpoint);
        }
    }

    /// Hands the next event to the engine, unless the engine holds too many frames.
    #[inline]
    fn next_event(&mut self) -> Option<Event> {
        // Results of operations come before the report that their peers are lost, if they are.
        if let Some((cookie, result)) = self.send.resources.operations.next_result() {
            return Some(Event::Performed(cookie, result));
        }
        loop {
            match self.receive.pending.first()? {
                PendingEvent::Lost { peer, why, .. } => {
                    self.receive.pending.remove_first();
                    return Some(Event::Lost(peer, why));
                }
                PendingEvent::Frame(_) if self.holds_most() => return None,
                PendingEvent::Frame(frame) => {
                    self.receive.pending.remove_first();
                    if let Some(event) = self.open_frame(frame) {
                        return Some(event);
                    }
                }
            }
        }
    }

    /// Checks a received frame, and copies its first bytes.
    #[inline]
    fn open_frame(&mut self, frame: ReceivedFrame) -> Option<Event> {
        let ReceivedFrame { endpoint, buffer, len, immediate, is_current } = frame;
        let (from, state) = self.peers.get(endpoint).map(|peer| (peer.peer, peer.state))?;
        if state == ConnState::Handshake && is_current {
            self.set_established(endpoint); // a peer that sends has connected
        }
        // A message without immediate data is not a frame.
        let [tag, header, zeros @ ..] = immediate.unwrap_or(u32::MAX).to_le_bytes();
        let valid = HEAD.min(len as usize);
        let room = self.queues.receive_buffer(buffer, 0, valid)?;
        if usize::from(header) > valid || zeros != [0, 0] || len > self.config.max_send_size_bytes {
            self.counters.malformed += 1;
            self.receive.post_later(buffer, &self.queues);
            self.lose(endpoint, Lost::Misbehaved);
            return None;
        }
        let mut head = [0; HEAD];
        // SAFETY: within the region, and the device has completed the buffer, which is not posted again yet.
        unsafe { room.copy_to_nonoverlapping(std::ptr::NonNull::from(&mut head).cast(), valid) };
        if len as usize <= HEAD {
            self.receive.post_later(buffer, &self.queues);
        } else {
            self.receive.hold(buffer, HeldFrame { endpoint, len })?;
        }
        Some(Event::Frame(Frame { id: FrameId(buffer.into()), from, tag, valid: valid as u8, len, head }))
    }
}
