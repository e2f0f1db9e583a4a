//! What is lost, and leaves again: told by what left later and came (RACK, RFC 8985), or asked for when nothing comes.

use super::state::Link;

use super::checksum::Checksum;
use super::congestion::SILENCES;
use super::in_flight::{LEFT, READING, RESENT};
use super::numbers::distance;
use crate::rail::FullRail;
use crate::time::Duration;

/// What one acknowledgement tells.
#[derive(Default)]
struct News {
    count: u32,
    /// Of the frame that left last: the how-manieth it was, and how long it took.
    newest: u64,
    trip: u64,
    /// It left once, so that there is no doubt of the latter.
    once: bool,
    /// A frame came after one that left after it, and how much too late.
    late: Option<u64>,
    /// A frame that was resent had come before that.
    vain: bool,
}

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// Takes in that all numbers before `ack` have come, and those from `from` on whose bits are set. `all`: no others have.
    pub(super) fn on_ack(&mut self, at: u32, ack: u64, from: u64, words: &[u64], all: bool) {
        let Some(path) = self.paths.get(at as usize) else { return };
        let (first, next) = (path.first, path.next);
        let mut news = News::default();
        if distance(ack, first) > 0 {
            let mut number = first;
            while number != ack {
                self.acknowledged(at, number, all, &mut news);
                number = number.wrapping_add(1);
            }
            if let Some(path) = self.paths.get_mut(at as usize) {
                path.first = ack;
            }
        }
        for (index, word) in words.iter().enumerate() {
            let start = from.wrapping_add(index as u64 * 64);
            // Bits before what is acknowledged already, or beyond the ring of bits, say nothing.
            let mut new = *word & !self.out_bits(at).word(start);
            while new != 0 {
                let number = start.wrapping_add(u64::from(new.trailing_zeros()));
                new &= new.wrapping_sub(1);
                // Before what was acknowledged before, others may stand in those numbers' places by now.
                if distance(number, first) >= 0 && distance(number, ack) >= 0 && distance(number, next) < 0 {
                    self.acknowledged(at, number, all, &mut news);
                }
            }
        }
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        let above = match words {
            _ if all => path.parts.end(from),
            [] => (0, 0), // numbers alone, with a frame of the peer's, do not tell what came beyond them
            _ => {
                path.parts.hear(from, news.newest, news.trip);
                (0, 0)
            }
        };
        if news.count == 0 && above.0 <= path.latest {
            return;
        }
        if news.count != 0 {
            self.learn(at, &news);
        }
        if all {
            let newest = above.max((news.newest, news.trip));
            if let Some(path) = self.paths.get_mut(at as usize).filter(|path| newest.0 > path.latest) {
                (path.latest, path.trip) = newest;
            }
            self.find_lost(at);
        }
        if self.flush(at) {
            self.work_later(at);
        }
        self.set_timer(at);
    }

    /// A frame has come.
    fn acknowledged(&mut self, at: u32, number: u64, all: bool, news: &mut News) {
        self.out_bits(at).set(number);
        let Some(slot) = self.window(at, number) else { return };
        if let Some(entry) = self.window_mut(at, number) {
            *entry = 0;
        }
        let Some(kept) = self.kept.at(slot) else { return };
        let (left, left_at, flags, sure) = (kept.left, kept.left_at, kept.flags, kept.sure);
        let control = kept.is_control();
        self.take_off(slot);
        let trip = self.now.saturating_sub(left_at);
        self.count(at, control, -1);
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        news.count = news.count.wrapping_add(1);
        let (once, least) = (flags & RESENT == 0, path.estimator.least());
        if !once && sure == 0 && trip < least {
            news.vain = true; // this is of an earlier time on its way
        } else if flags & LEFT != 0 {
            // Of a frame that was to find out why nothing comes, it may be the first time that has come.
            let (left, trip) = if sure == 0 { (left, trip) } else { (sure, trip.max(least)) };
            if left > news.newest {
                (news.newest, news.trip, news.once) = (left, trip, once);
            }
            if once && all && left < path.latest {
                let late = trip.saturating_sub(path.trip);
                news.late = Some(news.late.unwrap_or(0).max(late));
            }
        }
        self.over(slot);
    }

    /// What an acknowledgement says of the way to a peer.
    fn learn(&mut self, at: u32, news: &News) {
        let (now, bounds) = (self.now, self.timeout_bounds());
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        path.timeouts = 0;
        path.owes_since = if path.kept == 0 { 0 } else { now.max(1) };
        if news.once {
            path.too_early = 0;
            // The pause of a peer is of no way: it makes the next time-outs twice as long, and not as long as it was.
            let most = if path.estimator.smoothed() == 0 { u64::MAX } else { path.estimator.timeout(bounds, 1) };
            path.estimator.sample(news.trip.min(most), now);
        }
        let (least, most) = (path.estimator.least(), path.estimator.smoothed());
        if let Some(late) = news.late {
            path.overtaking.on_late(late, most);
        }
        if news.vain {
            path.overtaking.on_vain(path.latest.max(news.newest), path.left, least, most);
        }
        path.congestion.on_came(news.count, news.newest, path.left, least, now, path.window);
    }

    /// The peer tells how many frames it got twice.
    pub(super) fn on_doubles(&mut self, at: u32, doubles: u16) {
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        let (vain, too_early) = path.overtaking.on_doubles(doubles, path.latest);
        // What left twice does not tell how long its way is (Karn). Were time-outs no longer after that, the next frames would leave
        // twice as well, and a way that grew longer would never be measured.
        path.too_early = path.too_early.saturating_add(too_early.into());
        if vain != 0 {
            let (least, most) = (path.estimator.least(), path.estimator.smoothed());
            path.overtaking.on_vain(path.latest, path.left, least, most);
            self.counters.spurious = self.counters.spurious.wrapping_add(vain.into());
        }
    }

    /// What left well before something that has come is lost.
    fn find_lost(&mut self, at: u32) {
        let reorder = u64::from(self.config.reorder);
        while let Some(path) = self.paths.get_mut(at as usize)
            && let Some(kept) = path.sent.first().and_then(|slot| self.kept.at(slot))
            && kept.left < path.latest
        {
            let least = path.estimator.least();
            let due = kept.left_at.saturating_add(path.trip).saturating_add(path.overtaking.patience(least));
            let overtaken = !path.overtaking.is_seen() && path.latest.wrapping_sub(kept.left) >= reorder;
            if due > self.now && !overtaken {
                return;
            }
            if path.congestion.on_loss(kept.left, path.left, path.window) {
                path.overtaking.on_loss(least);
            }
            self.lose_first(at);
        }
    }

    /// The oldest frame under way is taken for lost.
    fn lose_first(&mut self, at: u32) {
        let Some(slot) = self.paths.get(at as usize).and_then(|path| path.sent.first()) else { return };
        if !self.still_leaving(at, slot) {
            self.take_off(slot);
            if let Some(kept) = self.kept.at_mut(slot) {
                kept.sure = 0;
            }
            self.wait(slot);
        }
    }

    /// Whether the rail below has not sent a frame yet, which then counts as if it left now.
    fn still_leaving(&mut self, at: u32, slot: u32) -> bool {
        let now = self.now;
        let (Some(path), Some(kept)) = (self.paths.get_mut(at as usize), self.kept.at_mut(slot)) else { return false };
        if kept.flags & READING == 0 {
            return false;
        }
        path.left = path.left.wrapping_add(1);
        (kept.left, kept.left_at) = (path.left, now);
        path.sent.remove(&mut self.kept, slot);
        path.sent.push(&mut self.kept, slot);
        true
    }

    /// When something under way is to be looked for, if nothing is heard until then.
    pub(super) fn resend_at(&self, at: u32) -> Option<u64> {
        let path = self.paths.get(at as usize)?;
        let first = self.kept.at(path.sent.first()?)?;
        if first.left < path.latest {
            let patience = path.overtaking.patience(path.estimator.least());
            return Some(first.left_at.saturating_add(path.trip).saturating_add(patience));
        }
        let last = self.kept.at(path.sent.last()?)?;
        let times = u32::from(path.timeouts).saturating_add(path.too_early.into());
        let timeout = path.estimator.timeout(self.timeout_bounds(), times);
        Some(last.left_at.max(path.asked_at).saturating_add(timeout))
    }

    /// As [`Estimator::timeout`](super::estimator::Estimator::timeout) wants them.
    fn timeout_bounds(&self) -> [u64; 4] {
        let config = &self.config;
        [config.initial_timeout, config.least_timeout, config.most_timeout, config.ack_delay].map(Duration::as_nanos)
    }

    /// It is time to.
    pub(super) fn look_for_lost(&mut self, at: u32) {
        let Some(path) = self.paths.get(at as usize) else { return };
        let Some(first) = path.sent.first().and_then(|slot| self.kept.at(slot)) else { return };
        if first.left < path.latest {
            self.find_lost(at);
        } else {
            self.ask(at);
        }
        if self.flush(at) {
            self.work_later(at);
        }
    }

    /// Nothing was heard in time of anything that is under way. What left last leaves again, since the answer tells of all
    /// before it, and what left first, for which the peer waits longest: one of them may be lost, too. If that was in vain
    /// several times, the peer may have no room for what is under way before it has one that waits for room in the window.
    fn ask(&mut self, at: u32) {
        let now = self.now;
        let Some(path) = self.paths.get_mut(at as usize) else { return };
        (path.timeouts, path.asked_at) = (path.timeouts.saturating_add(1), now);
        path.congestion.on_silence(path.timeouts.into());
        let (last, first) = (path.sent.last(), path.sent.first());
        let beyond = path.waiting[1].first().filter(|_| u32::from(path.timeouts) >= SILENCES);
        self.counters.timeouts = self.counters.timeouts.wrapping_add(1);
        // What left last does so again: if nothing is heard of this, it is the one to ask with next time.
        for slot in [first.filter(|_| first != last), last].into_iter().flatten() {
            if self.still_leaving(at, slot) {
                continue;
            }
            if let Some(kept) = self.kept.at_mut(slot).filter(|kept| kept.sure == 0) {
                kept.sure = kept.left;
            }
            self.leave_or_wait(slot);
        }
        if let Some(slot) = beyond {
            self.leave_or_wait(slot);
        }
    }
}
