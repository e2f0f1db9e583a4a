//! What the links of a bundle report.

use super::entries::has;
use super::state::Bundle;
use crate::rail::failover::{deliver_rest, weigh};
use crate::rail::{Claim, Delivery, Event, Frame, FullRail, Origin};
use crate::time::Instant;

/// The most events of one link that one poll processes without an event for the user.
const AT_ONCE: u32 = 64;

impl<R: FullRail, L: AsRef<[R]> + AsMut<[R]>> Bundle<'_, R, L> {
    pub(super) fn next_event(&mut self, now: Instant) -> Option<Event> {
        self.now = now;
        self.more = false;
        if let Some(event) = self.next_withheld() {
            return Some(event);
        }
        for _ in 0..self.count() {
            let link = self.turn;
            self.turn = if link.wrapping_add(1) < self.count() { link.wrapping_add(1) } else { 0 };
            if let Some(event) = self.poll_link(link, now) {
                return Some(event);
            }
        }
        self.migrate_frames()
    }

    /// Polls one link until there is an event for the user.
    fn poll_link(&mut self, link: usize, now: Instant) -> Option<Event> {
        for _ in 0..AT_ONCE {
            if self.is_full() {
                return None;
            }
            let event = self.link_mut(link)?.poll(now)?;
            if let Some(event) = self.arrive(link, event) {
                return Some(event);
            }
        }
        self.more = true;
        None
    }

    /// The user's event for the event of a link. The numbers of peers in events of links are slots.
    fn arrive(&mut self, link: usize, event: Event) -> Option<Event> {
        match event {
            Event::Frame(frame) if self.is_known(&frame) => self.hand_out(link, frame),
            Event::Migrated(origin, frame) if self.is_known(&frame) => {
                self.arrive_migrated(link, origin, frame, u64::MAX)
            }
            Event::Frame(frame) | Event::Migrated(_, frame) => {
                self.drop_frame(link, &frame);
                None
            }
            Event::Sent(_) | Event::Delivered(_) | Event::Performed(..) => Some(event),
            Event::Lost(peer, why) => self.lose(peer.0, why),
            Event::Down(peer, why) => self.link_down(link, peer.0, why),
            Event::Up(peer) => {
                self.link_up(link, peer.0);
                None
            }
            Event::Silent(peer, due) => self.link_silent(link, peer.0, due),
        }
    }

    /// Whether the sender of a frame is a peer that is not lost.
    fn is_known(&self, frame: &Frame) -> bool {
        self.peers.at(frame.from.0).is_some_and(|state| !state.lost)
    }

    /// Handles a migrated frame: asks all links to the peer about it. It may be a frame that the user holds, but only one that
    /// arrived before the frame of the serial number `before`.
    pub(super) fn arrive_migrated(&mut self, link: usize, origin: Origin, frame: Frame, before: u64) -> Option<Event> {
        let at = frame.from.0;
        let added = self.peers.at(at)?.added;
        let mut verdict = None;
        for other in (0..self.count()).filter(|other| has(added, *other)) {
            let endpoint = self.endpoint(at, other);
            let Some(rail) = self.link_mut(other) else { continue };
            verdict = weigh(verdict, rail.claim(endpoint, origin));
        }
        match verdict {
            Some(Claim::New) => return self.hand_out(link, frame),
            Some(Claim::Awaited { skip, sink, cookie }) => {
                // SAFETY: a link has just answered this to the claim.
                let delivery = unsafe { deliver_rest(self.link_mut(link)?, &frame, skip, sink, cookie) };
                return (delivery == Delivery::Done).then_some(Event::Delivered(cookie));
            }
            // A link answers the same about a frame that the user holds, but that frame may have to arrive once more.
            Some(Claim::Duplicate) if !frame.is_whole() && self.user_holds(at, before) => {
                self.doubt(link, origin, frame);
                return None;
            }
            Some(Claim::Duplicate) | None => {}
        }
        self.counters.duplicates = self.counters.duplicates.wrapping_add(1);
        self.drop_frame(link, &frame);
        None
    }

    fn drop_frame(&mut self, link: usize, frame: &Frame) {
        if !frame.is_whole() {
            self.release_on(link, frame.id);
        }
    }
}
