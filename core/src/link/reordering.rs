//! Reordering: how long the link waits for a frame when later ones have arrived.

use zerocopy::FromZeros;

/// Whether frames may overtake others.
pub(super) const REORDERS: bool = true;

/// After this many round trips with losses the reordering window is halved.
const CALM: u8 = 16;

/// How much frames are reordered on the path to a peer (RFC 8985, 6.2 and 7). Zeros: no reordering is known.
///
/// A transmission is named by its count, as in [`LossDetection`](super::path::LossDetection).
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct Reordering {
    /// The reordering window: how many nanoseconds longer than the round trip of later frames a frame may take.
    late: u64,
    /// The last transmission when `late` was last doubled. A report about earlier transmissions is no news.
    learnt: u64,
    seen: bool,
    calm: u8,
    /// How many frames the peer got twice, as it last reported.
    duplicates: u16,
    /// How many tail loss probes the peer may yet report as duplicates.
    excused: u16,
    /// The last transmission among those.
    excused_until: u64,
    /// Time-outs that were too early, since a round trip was last measured.
    early_timeouts: u8,
}

impl Reordering {
    /// Whether any reordering was seen.
    pub const fn is_seen(&self) -> bool {
        self.seen
    }

    /// How late a frame may be before it counts as lost, in nanoseconds. `least` is the shortest round trip.
    pub const fn window(&self, least: u64) -> u64 {
        if self.late > least / 4 { self.late } else { least / 4 }
    }

    /// Time-outs that were too early, since a round trip was last measured.
    pub const fn early_timeouts(&self) -> u8 {
        self.early_timeouts
    }

    /// A round trip was measured, so time-outs are right again.
    pub const fn on_measured(&mut self) {
        self.early_timeouts = 0;
    }

    /// A frame arrived `late` nanoseconds after a later one. `most` is as late as any may be.
    pub fn on_late(&mut self, late: u64, most: u64) {
        (self.seen, self.calm) = (true, 0);
        self.late = self.late.max(late.saturating_add(late / 4).min(most));
    }

    /// A frame was sent again although it had arrived. The round trip in which that was found ends with transmission `sent`.
    pub fn on_spurious(&mut self, newest: u64, sent: u64, least: u64, most: u64) {
        (self.seen, self.calm) = (true, 0);
        if newest > self.learnt {
            self.learnt = sent;
            self.late = self.window(least).saturating_mul(2).min(most.max(least));
        }
    }

    /// A round trip had a loss.
    pub fn on_loss(&mut self, least: u64) {
        self.calm = self.calm.saturating_add(1);
        if self.calm >= CALM {
            (self.calm, self.late) = (0, self.late / 2);
            self.seen &= self.late > least / 4;
        }
    }

    /// A tail loss probe was sent. If the peer gets its frame twice, that proves no reordering.
    pub fn excuse(&mut self, sent: u64) {
        (self.excused, self.excused_until) = (self.excused.saturating_add(1), sent);
    }

    /// The peer reports how many frames it got twice, and that transmission `latest` has arrived. Returns how many of them are
    /// news, and were falsely taken for lost.
    pub fn on_duplicates(&mut self, duplicates: u16, latest: u64) -> u16 {
        let more = duplicates.wrapping_sub(self.duplicates);
        if more >= 0x8000 {
            return 0; // a later acknowledgement has overtaken this one
        }
        self.duplicates = duplicates;
        let excused = more.min(self.excused);
        self.excused = self.excused.wrapping_sub(excused);
        if latest > self.excused_until {
            self.excused = 0; // these probes arrived before that, or are lost
        }
        // The round trip of a frame that was sent twice is not known (Karn). If time-outs did not grow after that, the next
        // frames would be sent twice as well, and a path that became longer would never be measured.
        self.early_timeouts = self.early_timeouts.saturating_add((excused != 0).into());
        more.wrapping_sub(excused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_grows_with_late_frames_and_is_forgotten_after_losses() {
        let mut reordering = Reordering::new_zeroed();
        assert_eq!((reordering.window(100), reordering.is_seen()), (25, false));
        reordering.on_late(80, 1000);
        assert_eq!((reordering.window(100), reordering.is_seen()), (100, true));
        reordering.on_spurious(1, 10, 100, 1000);
        reordering.on_spurious(10, 20, 100, 1000); // of the same round trip
        assert_eq!(reordering.window(100), 200);
        (0..20).for_each(|turn| reordering.on_spurious(100 + turn * 2, 101 + turn * 2, 100, 1000));
        assert_eq!(reordering.window(100), 1000);
        (0..16 * 6).for_each(|_| reordering.on_loss(100));
        assert_eq!((reordering.window(100), reordering.is_seen()), (25, false));
    }

    /// The duplicates that are news, and whether a time-out was too early.
    fn report(reordering: &mut Reordering, duplicates: u16, latest: u64) -> (u16, bool) {
        let early = reordering.early_timeouts();
        (reordering.on_duplicates(duplicates, latest), reordering.early_timeouts() != early)
    }

    #[test]
    fn duplicates_are_news_once_and_excused_after_a_tail_loss_probe() {
        let mut reordering = Reordering::new_zeroed();
        assert_eq!([3, 3, 2, 5].map(|count| report(&mut reordering, count, 10).0), [3, 0, 0, 2]);
        (11..41).for_each(|left| reordering.excuse(left));
        assert_eq!([6, 34, 36].map(|count| report(&mut reordering, count, 40)), [(0, true), (0, true), (1, true)]);
        assert_eq!([0x8007 + 28, 30].map(|count| report(&mut reordering, count, 40).0), [0x7fff, 0x7ffb]);
        let mut reordering = Reordering::new_zeroed();
        (1..4).for_each(|left| reordering.excuse(left));
        assert_eq!(report(&mut reordering, 1, 3), (0, true));
        assert_eq!(report(&mut reordering, 2, 4), (0, true), "told together with one that left later");
        assert_eq!(report(&mut reordering, 3, 5), (1, false), "the third will not come");
    }
}
