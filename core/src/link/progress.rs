//! What a poll does: it takes the events of the rail below, sends what waited for room, and tells what is over.

use super::checksum::Checksum;
use super::state::Link;
use crate::rail::{Event, FullRail};
use crate::time::Instant;

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// There is something to send for which the raw rail had no room.
    pub(super) fn work_later(&mut self, at: u32) {
        if let Some(path) = self.paths.get_mut(at as usize)
            && !path.in_work
        {
            path.in_work = true;
            self.work.push(at);
        }
    }

    /// Nanoseconds until the raw rail is tried again after so many refusals in a row: the longer it has no room the less often,
    /// as a caller that sleeps is woken each time.
    pub(super) fn after_refusals(&self, times: u8) -> u64 {
        self.config.ack_delay.as_nanos().clamp(1000, 1 << 32) << times.min(8)
    }

    /// Tries to send what waits for room. Polls are free to try at any time; only a round through all of it, at a time when it was
    /// due, counts as refused.
    pub(super) fn do_work(&mut self) {
        let left = |link: &Self, at: u32| link.paths.get(at as usize).map(|path| path.left);
        for _ in 0..self.work.len().min(4) {
            let Some(at) = self.work.pop() else { break };
            if let Some(path) = self.paths.get_mut(at as usize) {
                path.in_work = false;
            }
            let before = left(self, at);
            let more = self.flush(at);
            if more {
                self.work_later(at);
            }
            if more && left(self, at) == before {
                self.work_tried = self.work_tried.saturating_add(1);
            } else {
                (self.work_tried, self.work_refused, self.work_due) = (0, 0, 0);
            }
        }
        if self.work.is_empty() {
            (self.work_tried, self.work_refused, self.work_due) = (0, 0, 0);
        } else if self.work_tried >= self.work.len() {
            self.work_tried = 0;
            if self.work_due <= self.now {
                self.work_due = self.now.saturating_add(self.after_refusals(self.work_refused));
                self.work_refused = self.work_refused.saturating_add(1);
            }
        }
    }

    pub(super) fn next_told(&mut self) -> Option<Event> {
        if let Some(cookie) = self.next_done() {
            return Some(Event::Sent(cookie));
        }
        if let Some(cookie) = self.next_filled() {
            return Some(Event::Delivered(cookie));
        }
        self.next_report()
    }

    pub(super) fn on_raw(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::Frame(frame) => return self.on_frame(&frame),
            Event::Sent(cookie) => self.on_raw_sent(cookie),
            Event::Delivered(cookie) => return self.on_raw_delivered(cookie),
            Event::Performed(..) => return Some(event),
            Event::Lost(peer, why) | Event::Down(peer, why) => self.on_raw_lost(peer.0, why),
            Event::Silent(peer, _) => self.ask_at_once(peer.0),
            Event::Up(_) => {}
            Event::Migrated(_, frame) => {
                // Of a link below this one, which makes no sense.
                if !frame.is_whole() {
                    self.raw.release(frame.id);
                }
            }
        }
        None
    }

    /// Where the clock stands. After a pause nobody is taken for dead before what came meanwhile has been heard.
    pub(super) fn tick(&mut self, now: Instant) {
        let now = now.as_nanos().max(self.now);
        let patience = self.config.patience();
        if now.saturating_sub(self.now) > patience / 2 {
            self.grace = now.saturating_add(patience / 4);
        }
        if self.now == 0 {
            self.began = now;
        }
        self.listened = self.listened.saturating_add(now.saturating_sub(self.now).min(patience / 64));
        self.now = now;
    }
}
