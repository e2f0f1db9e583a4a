//! Loss detection and retransmission: by RACK (RFC 8985) if later frames were acknowledged, by a tail loss probe if nothing was
//! acknowledged in time.

use super::checksum::Checksum;
use super::congestion::MAX_SILENCES;
use super::in_flight::{READING, RETRANSMITTED, SENT};
use super::numbers::distance;
use super::reordering::REORDERS;
use super::state::Link;
use crate::rail::{FullRail, LATER};
use crate::time::Duration;

/// The news of one acknowledgement.
#[derive(Default)]
struct News {
    /// How many frames are acknowledged that were not before.
    count: u32,
    /// The latest transmission among them.
    newest: u64,
    /// Its round trip, in nanoseconds.
    trip: u64,
    /// Whether that frame was sent once, so that the round trip is certain.
    once: bool,
    /// If a frame arrived after a later one: how late it was, in nanoseconds.
    late: Option<u64>,
    /// A frame was sent again although it had arrived.
    spurious: bool,
}

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// The peer reports that all numbers before `ack` have arrived, and those from `from` on whose bits are set. `all`: the
    /// other numbers have not arrived.
    pub(super) fn on_ack(&mut self, at: u32, ack: u64, from: u64, words: &[u64], all: bool) {
        let Some(path) = self.peers.paths.get(at as usize) else { return };
        let (first, next) = (path.send.first, path.send.next);
        let mut news = News::default();
        if distance(ack, first) > 0 {
            let mut number = first;
            while number != ack {
                self.acknowledged(at, number, all, &mut news);
                number = number.wrapping_add(1);
            }
            if let Some(path) = self.peers.paths.get_mut(at as usize) {
                path.send.first = ack;
            }
        }
        for (index, word) in words.iter().enumerate() {
            let start = from.wrapping_add(index as u64 * 64);
            // Bits of numbers that are acknowledged already, or that are beyond the ring of bits, are no news.
            let mut new = *word & !self.acked_bits(at).word(start);
            while new != 0 {
                let number = start.wrapping_add(u64::from(new.trailing_zeros()));
                new &= new.wrapping_sub(1);
                // The places of numbers before `first` in the ring may belong to other numbers by now.
                if distance(number, first) >= 0 && distance(number, ack) >= 0 && distance(number, next) < 0 {
                    self.acknowledged(at, number, all, &mut news);
                }
            }
        }
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return };
        let above = match words {
            _ if all => path.loss.parts.end(from),
            [] => (0, 0), // the acknowledgement in a data frame reports no numbers beyond it
            _ => {
                path.loss.parts.add(from, news.newest, news.trip);
                (0, 0)
            }
        };
        if news.count == 0 && above.0 <= path.loss.latest {
            return;
        }
        if news.count != 0 {
            self.update_estimates(at, &news);
        }
        if all {
            let Some(path) = self.peers.paths.get_mut(at as usize) else { return };
            if REORDERS {
                let newest = above.max((news.newest, news.trip));
                if newest.0 > path.loss.latest {
                    (path.loss.latest, path.loss.latest_trip) = newest;
                }
            } else {
                path.loss.latest = path.loss.latest.max(news.newest); // no time of it is needed
            }
            self.find_lost(at);
        }
        if self.send_queued(at) {
            self.queue_work(at);
        }
        self.set_timer(at);
    }

    /// A frame has arrived.
    fn acknowledged(&mut self, at: u32, number: u64, all: bool, news: &mut News) {
        self.acked_bits(at).set(number);
        let Some(slot) = self.window_slot(at, number) else { return };
        if let Some(entry) = self.window_entry_mut(at, number) {
            *entry = 0;
        }
        let Some(frame) = self.send.frames.at(slot) else { return };
        let (transmission, sent_at, flags) = (frame.transmission, frame.sent_at, frame.flags);
        let (before_probe, control) = (frame.before_probe, frame.is_control());
        self.unlist(slot);
        let trip = self.clock.now.wrapping_sub(sent_at);
        self.count(at, control, -1);
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return };
        news.count = news.count.wrapping_add(1);
        let (once, least) = (flags & RETRANSMITTED == 0, path.estimator.least());
        if !once && before_probe == 0 && trip < least {
            news.spurious = true; // the acknowledgement is of an earlier transmission
        } else if flags & SENT != 0 {
            // If the frame was sent as a tail loss probe, its earlier transmission may be the one that arrived.
            let (sent, trip) = if before_probe == 0 { (transmission, trip) } else { (before_probe, trip.max(least)) };
            if sent > news.newest {
                (news.newest, news.trip, news.once) = (sent, trip, once);
            }
            if REORDERS && once && all && sent < path.loss.latest {
                let late = trip.saturating_sub(path.loss.latest_trip);
                news.late = Some(news.late.unwrap_or(0).max(late));
            }
        }
        self.finish_frame(slot);
    }

    /// An acknowledgement measures the path to the peer.
    fn update_estimates(&mut self, at: u32, news: &News) {
        let (now, bounds) = (self.clock.now, self.timeout_bounds());
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return };
        path.liveness.owes_since = if path.send.unacked == 0 { 0 } else { now.max(1) };
        if news.once {
            path.loss.reordering.on_measured();
            // A pause of the peer is no property of the path. It makes the next time-outs twice as long, not as long as the
            // pause.
            let most = match path.estimator.smoothed() {
                0 => u64::MAX,
                _ => path.estimator.timeout(bounds, 1),
            };
            path.estimator.sample(news.trip.min(most), now);
        }
        let (least, most) = (path.estimator.least(), path.estimator.smoothed());
        let (latest, sent) = (path.loss.latest, path.loss.transmissions);
        if let Some(late) = news.late {
            path.loss.reordering.on_late(late, most);
        }
        if news.spurious {
            path.loss.reordering.on_spurious(latest.max(news.newest), sent, least, most);
        }
        path.congestion.on_acked(news.count, news.newest, sent, least, now, path.send.window);
    }

    /// The peer reports how many frames it got twice.
    pub(super) fn on_duplicates(&mut self, at: u32, duplicates: u16) {
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return };
        let spurious = path.loss.reordering.on_duplicates(duplicates, path.loss.latest);
        if spurious != 0 {
            let (least, most) = (path.estimator.least(), path.estimator.smoothed());
            path.loss.reordering.on_spurious(path.loss.latest, path.loss.transmissions, least, most);
            self.counters.spurious = self.counters.spurious.wrapping_add(spurious.into());
        }
    }

    /// A frame that was sent well before one that has arrived is lost.
    fn find_lost(&mut self, at: u32) {
        let reorder = u64::from(self.config.reorder);
        while let Some(path) = self.peers.paths.get_mut(at as usize)
            && let Some(frame) = path.send.sent.first().get().and_then(|slot| self.send.frames.at(slot))
            && frame.transmission < path.loss.latest
        {
            let least = path.estimator.least();
            let window = path.loss.reordering.window(least);
            let due = frame.sent_at.wrapping_add(path.loss.latest_trip).wrapping_add(window);
            let later = path.loss.latest.wrapping_sub(frame.transmission);
            let overtaken = !path.loss.reordering.is_seen() && later >= reorder;
            if REORDERS && due > self.clock.now && !overtaken {
                return;
            }
            if path.congestion.on_loss(frame.transmission, path.loss.transmissions, path.send.window) {
                path.loss.reordering.on_loss(least);
            }
            self.mark_first_lost(at);
        }
    }

    /// The oldest frame in flight counts as lost.
    fn mark_first_lost(&mut self, at: u32) {
        let Some(slot) = self.peers.paths.get(at as usize).and_then(|path| path.send.sent.first().get()) else {
            return;
        };
        if !self.is_still_sending(at, slot) {
            self.unlist(slot);
            if let Some(frame) = self.send.frames.at_mut(slot) {
                frame.before_probe = 0;
            }
            self.queue(slot);
        }
    }

    /// Whether the rail below still reads a frame's body to send it. Such a frame counts as sent now.
    fn is_still_sending(&mut self, at: u32, slot: u32) -> bool {
        if !LATER {
            return false;
        }
        let now = self.clock.now;
        let (Some(path), Some(frame)) = (self.peers.paths.get_mut(at as usize), self.send.frames.at_mut(slot)) else {
            return false;
        };
        if frame.flags & READING == 0 {
            return false;
        }
        path.loss.transmissions = path.loss.transmissions.wrapping_add(1);
        (frame.transmission, frame.sent_at) = (path.loss.transmissions, now);
        path.send.sent.remove(&mut self.send.frames, slot);
        path.send.sent.push(&mut self.send.frames, slot);
        true
    }

    /// When a frame in flight counts as lost, or a tail loss probe is due, if nothing arrives until then.
    pub(super) fn resend_at(&self, at: u32) -> Option<u64> {
        let path = self.peers.paths.get(at as usize)?;
        let first = self.send.frames.at(path.send.sent.first().get()?)?;
        if first.transmission < path.loss.latest {
            if !REORDERS {
                return Some(self.clock.now);
            }
            let window = path.loss.reordering.window(path.estimator.least());
            return Some(first.sent_at.wrapping_add(path.loss.latest_trip).wrapping_add(window));
        }
        let last = self.send.frames.at(path.send.sent.last().get()?)?;
        let early = path.loss.reordering.early_timeouts();
        let times = u32::from(path.congestion.timeouts()).saturating_add(early.into());
        let timeout = path.estimator.timeout(self.timeout_bounds(), times);
        Some(last.sent_at.max(path.loss.probed_at).wrapping_add(timeout))
    }

    /// The bounds that [`Estimator::timeout`](super::estimator::Estimator::timeout) takes.
    fn timeout_bounds(&self) -> [u64; 4] {
        let config = &self.config;
        [config.initial_timeout, config.least_timeout, config.most_timeout, config.ack_delay].map(Duration::as_nanos)
    }

    /// The time of [`resend_at`](Self::resend_at) has come.
    pub(super) fn on_loss_timer(&mut self, at: u32) {
        let Some(path) = self.peers.paths.get(at as usize) else { return };
        let Some(first) = path.send.sent.first().get().and_then(|slot| self.send.frames.at(slot)) else { return };
        if first.transmission < path.loss.latest {
            self.find_lost(at);
        } else {
            self.send_tail_loss_probe(at);
        }
        if self.send_queued(at) {
            self.queue_work(at);
        }
    }

    /// Nothing in flight was acknowledged in time. The last frame is sent again, since its acknowledgement covers all frames
    /// before it. The first frame is sent again, too, since the peer waits for it longest: either of them may be lost. If that
    /// did not help several times, the peer may have no room for the frames in flight before it gets one that waits for room in
    /// the congestion window.
    fn send_tail_loss_probe(&mut self, at: u32) {
        let now = self.clock.now;
        let Some(path) = self.peers.paths.get_mut(at as usize) else { return };
        path.loss.probed_at = now;
        path.congestion.on_timeout();
        let (last, first) = (path.send.sent.last().get(), path.send.sent.first().get());
        let beyond = path.send.queued[1].first().get().filter(|_| path.congestion.timeouts() >= MAX_SILENCES);
        self.counters.timeouts = self.counters.timeouts.wrapping_add(1);
        // The last frame is sent last again: if it is not answered, it is the next probe, too.
        for slot in [first.filter(|_| first != last), last].into_iter().flatten() {
            if self.is_still_sending(at, slot) {
                continue;
            }
            if let Some(frame) = self.send.frames.at_mut(slot).filter(|frame| frame.before_probe == 0) {
                frame.before_probe = frame.transmission;
            }
            self.transmit_or_queue(slot);
        }
        if let Some(slot) = beyond {
            self.transmit_or_queue(slot);
        }
    }
}
