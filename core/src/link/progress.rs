//! The parts of a poll: time, events of the rail below, frames that wait for room, and events for the user.

use super::checksum::Checksum;
use super::paths::SEVERAL;
use super::state::Link;
use crate::rail::{Event, FullRail};
use crate::time::Instant;

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// Sets the time.
    pub(super) fn tick(&mut self, now: Instant) {
        self.clock.tick(now, self.config.min_timeout());
    }

    /// Queues a peer that has frames for which the rail below had no room.
    pub(super) fn queue_work(&mut self, at: u32) {
        if let Some(path) = self.peers.paths.get_mut(at as usize)
            && !path.listed.work
        {
            path.listed.work = true;
            self.work.refused.push(at);
        }
    }

    /// How many nanoseconds pass before the rail below is tried again after `times` refusals in a row. The longer the rail
    /// below has no room, the less often it is tried, since each attempt wakes a caller that sleeps.
    #[inline(never)]
    pub(super) fn retry_delay(&self, times: u8) -> u64 {
        let first = self.config.ack_delay.as_nanos().clamp(1000, 1 << 32);
        // The room for a link's only peer cannot be kept by others, so it comes soon.
        if SEVERAL { first << times.min(8) } else { first }
    }

    /// Tries to send the frames that wait for room. Each poll may try, at any time. But only a round through all waiting peers
    /// counts as a refusal, and only if an attempt was due.
    pub(super) fn send_waiting(&mut self) {
        if !SEVERAL {
            if self.work.refused.pop().is_some() {
                if let Some(path) = self.peers.paths.get_mut(0) {
                    path.listed.work = false;
                }
                if self.send_queued(0) {
                    self.queue_work(0);
                    self.work.retry_at = self.clock.now.wrapping_add(self.retry_delay(0));
                }
            }
            return;
        }
        let sent = |link: &Self, at: u32| link.peers.paths.get(at as usize).map(|path| path.loss.transmissions);
        for _ in 0..self.work.refused.len().min(4) {
            let Some(at) = self.work.refused.pop() else { break };
            if let Some(path) = self.peers.paths.get_mut(at as usize) {
                path.listed.work = false;
            }
            let before = sent(self, at);
            let more = self.send_queued(at);
            if more {
                self.queue_work(at);
            }
            if more && sent(self, at) == before {
                self.work.tried = self.work.tried.saturating_add(1);
            } else {
                (self.work.tried, self.work.refusals, self.work.retry_at) = (0, 0, 0);
            }
        }
        if self.work.refused.is_empty() {
            (self.work.tried, self.work.refusals, self.work.retry_at) = (0, 0, 0);
        } else if self.work.tried >= self.work.refused.len() {
            self.work.tried = 0;
            if self.work.retry_at <= self.clock.now {
                self.work.retry_at = self.clock.now.wrapping_add(self.retry_delay(self.work.refusals));
                self.work.refusals = self.work.refusals.saturating_add(1);
            }
        }
    }

    /// The next event for the user, without a poll of the rail below.
    pub(super) fn next_event(&mut self) -> Option<Event> {
        if let Some(cookie) = self.next_sent() {
            return Some(Event::Sent(cookie));
        }
        if let Some(cookie) = self.next_delivered() {
            return Some(Event::Delivered(cookie));
        }
        self.next_report()
    }

    /// Processes an event of the rail below.
    pub(super) fn on_below(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::Frame(frame) => return self.on_frame(&frame),
            Event::Sent(cookie) => self.on_below_sent(cookie),
            Event::Delivered(cookie) => return self.on_below_delivered(cookie),
            Event::Performed(..) => return Some(event),
            Event::Lost(peer, reason) | Event::Down(peer, reason) => self.on_below_lost(peer.0, reason),
            Event::Silent(peer, _) => self.probe_if_up(peer.0),
            Event::Up(_) => {}
            Event::Migrated(_, frame) => {
                // Only a link reports this event, and the rail below is no link. The frame is dropped.
                if !frame.is_whole() {
                    self.below.release(frame.id);
                }
            }
        }
        None
    }
}
