//! How long a frame is waited for when others that left after it have come.

use zerocopy::FromZeros;

/// Round trips with losses after which frames that overtook others are half forgotten.
const CALM: u8 = 16;

/// How much frames overtake each other on the way to a peer (RFC 8985, 6.2 and 7). Zeros: they do not, as far as is known.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct Overtaking {
    /// Nanoseconds that frames were late, beyond the time of those that overtook them.
    late: u64,
    /// It was learnt with so many frames gone; what is told of those before is no news.
    learnt: u64,
    seen: bool,
    calm: u8,
    /// Frames that the peer got twice, as it told last.
    doubles: u16,
    /// Of those to come, the ones that left again because nothing was heard; and the how-manieth the last of these was to leave.
    excused: u16,
    excused_left: u64,
}

impl Overtaking {
    /// Frames do overtake each other.
    pub const fn is_seen(&self) -> bool {
        self.seen
    }

    /// Nanoseconds that a frame may be late before it is lost; `least` is the shortest round trip.
    pub const fn patience(&self, least: u64) -> u64 {
        if self.late > least / 4 { self.late } else { least / 4 }
    }

    /// A frame has come so late, after one that left after it; `most` is as late as any may be.
    pub fn on_late(&mut self, late: u64, most: u64) {
        (self.seen, self.calm) = (true, 0);
        self.late = self.late.max(late.saturating_add(late / 4).min(most));
    }

    /// A frame that was resent had come, in a round trip that ends with the `left`-th.
    pub fn on_vain(&mut self, newest: u64, left: u64, least: u64, most: u64) {
        (self.seen, self.calm) = (true, 0);
        if newest > self.learnt {
            self.learnt = left;
            self.late = self.patience(least).saturating_mul(2).min(most.max(least));
        }
    }

    /// A round trip in which something was lost.
    pub fn on_loss(&mut self, least: u64) {
        self.calm = self.calm.saturating_add(1);
        if self.calm >= CALM {
            (self.calm, self.late) = (0, self.late / 2);
            self.seen &= self.late > least / 4;
        }
    }

    /// A frame leaves again because nothing was heard: that the peer got it twice says nothing of its way.
    pub fn excuse(&mut self, left: u64) {
        (self.excused, self.excused_left) = (self.excused.saturating_add(1), left);
    }

    /// The peer tells how many frames it got twice, and the `latest`-th that left has come. How many of them are news, and were
    /// taken for lost; and whether any that left again because nothing was heard are among them.
    pub fn on_doubles(&mut self, doubles: u16, latest: u64) -> (u16, bool) {
        let more = doubles.wrapping_sub(self.doubles);
        if more >= 0x8000 {
            return (0, false); // an ack that was overtaken
        }
        self.doubles = doubles;
        let excused = more.min(self.excused);
        self.excused = self.excused.wrapping_sub(excused);
        if latest > self.excused_left {
            self.excused = 0; // they came before that, or do not come
        }
        (more.wrapping_sub(excused), excused != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_grows_with_what_is_late_and_is_forgotten_after_losses() {
        let mut overtaking = Overtaking::new_zeroed();
        assert_eq!((overtaking.patience(100), overtaking.is_seen()), (25, false));
        overtaking.on_late(80, 1000);
        assert_eq!((overtaking.patience(100), overtaking.is_seen()), (100, true));
        overtaking.on_vain(1, 10, 100, 1000);
        overtaking.on_vain(10, 20, 100, 1000); // of the same round trip
        assert_eq!(overtaking.patience(100), 200);
        (0..20).for_each(|turn| overtaking.on_vain(100 + turn * 2, 101 + turn * 2, 100, 1000));
        assert_eq!(overtaking.patience(100), 1000);
        (0..16 * 6).for_each(|_| overtaking.on_loss(100));
        assert_eq!((overtaking.patience(100), overtaking.is_seen()), (25, false));
    }

    #[test]
    fn doubles_are_news_once_and_excused_after_silence() {
        let mut overtaking = Overtaking::new_zeroed();
        assert_eq!([3, 3, 2, 5].map(|doubles| overtaking.on_doubles(doubles, 10).0), [3, 0, 0, 2]);
        (11..41).for_each(|left| overtaking.excuse(left));
        assert_eq!([6, 34, 36].map(|doubles| overtaking.on_doubles(doubles, 40)), [(0, true), (0, true), (1, true)]);
        assert_eq!([0x8007 + 28, 30].map(|doubles| overtaking.on_doubles(doubles, 40).0), [0x7fff, 0x7ffb]);
        let mut overtaking = Overtaking::new_zeroed();
        (1..4).for_each(|left| overtaking.excuse(left));
        assert_eq!(overtaking.on_doubles(1, 3), (0, true));
        assert_eq!(overtaking.on_doubles(2, 4), (0, true), "told together with one that left later");
        assert_eq!(overtaking.on_doubles(3, 5), (1, false), "the third will not come");
    }
}
