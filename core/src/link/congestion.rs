//! How many frames may be under way to a peer.

use zerocopy::FromZeros;

/// Frames that may be under way, whatever happens.
const LEAST: u32 = 4;
/// Times in a row that nothing was heard from which on the window shrinks to that.
pub(super) const SILENCES: u32 = 3;
/// Round trips of an age.
const AGE: u32 = 8;

/// A congestion window in frames. It grows as TCP's does, and shrinks by three tenths at most once a round trip. But these
/// are rails that lose frames by chance, too: it stays above what a link begins with, and above one and a half times what
/// came through lately in a round trip without queues. Where queues are the reason of the loss, less comes through.
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct Window {
    allowed: u32,
    /// Where slow start ends.
    threshold: u32,
    /// Frames acknowledged towards the next that may leave beyond those.
    fraction: u32,
    initial: u32,
    /// Frames that came in this round trip, and round trips in this age.
    came: u32,
    rounds: u32,
    /// The most frames that came in the time of the shortest round trip: in this age, in the one before.
    carried: [u32; 2],
    /// The round trip is over when a frame is acknowledged that left after so many; and when it began.
    round_ends: u64,
    round_began: u64,
    /// A loss among so many that left first was dealt with.
    recovered: u64,
}

impl Window {
    /// Of a link that has sent nothing.
    pub fn new(initial: u32, most: u32) -> Self {
        Self { allowed: initial, initial, threshold: most, ..Self::new_zeroed() }
    }

    /// Frames that may be under way.
    pub const fn allowed(&self) -> u32 {
        self.allowed
    }

    fn floor(&self, most: u32) -> u32 {
        let carried = self.carried.iter().copied().fold(0, u32::max);
        self.initial.max(carried.saturating_add(carried / 2)).min(most)
    }

    /// So many came, the one of them that left last being the `newest`-th of the `left` that left so far. `least` is the
    /// shortest round trip.
    pub fn on_came(&mut self, count: u32, newest: u64, left: u64, least: u64, now: u64, most: u32) {
        self.came = self.came.saturating_add(count);
        if self.allowed < self.threshold {
            self.allowed = self.allowed.saturating_add(count).min(most.max(self.allowed));
        } else {
            self.fraction = self.fraction.saturating_add(count);
            if self.fraction >= self.allowed {
                self.fraction = 0;
                self.allowed = self.allowed.saturating_add(1).min(most.max(self.allowed));
            }
        }
        if newest > self.round_ends {
            self.end_round(left, least, now);
            self.allowed = self.allowed.max(self.floor(most));
        }
    }

    fn end_round(&mut self, left: u64, least: u64, now: u64) {
        let took = now.saturating_sub(self.round_began).max(least);
        let carried = u64::from(self.came).saturating_mul(least).checked_div(took).unwrap_or(0);
        if self.round_began != 0
            && let [here, _] = &mut self.carried
        {
            *here = (*here).max(carried.min(u64::from(u32::MAX)) as u32);
        }
        (self.came, self.round_ends, self.round_began) = (0, left, now.max(1));
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds >= AGE {
            let [here, _] = self.carried;
            (self.rounds, self.carried) = (0, [0, here]);
        }
    }

    /// The `lost`-th frame of the `left` that left so far is lost. Whether that is the first loss of a round trip.
    pub fn on_loss(&mut self, lost: u64, left: u64, most: u32) -> bool {
        if lost <= self.recovered {
            return false;
        }
        let less = u64::from(self.allowed.min(most)).saturating_mul(7) / 10;
        self.allowed = (less as u32).max(self.floor(most)).max(LEAST);
        (self.threshold, self.recovered, self.fraction) = (self.allowed, left, 0);
        true
    }

    /// Nothing was heard, so many times in a row.
    pub fn on_silence(&mut self, times: u32) {
        if times < SILENCES {
            return;
        }
        self.carried = [0; 2];
        self.threshold = (self.allowed / 2).max(LEAST);
        self.allowed = self.threshold;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: u64 = 1000;

    /// So many round trips in which `lost` of a thousand do not come, over a path that carries `most` in a round trip.
    fn run(window: &mut Window, rounds: u64, lost: u32, most: u32) {
        let (mut left, mut now) = (window.recovered.max(window.round_ends), 1);
        for _ in 0..rounds {
            let sent = window.allowed();
            left += u64::from(sent);
            now += TRIP;
            let came = (sent - sent * lost / 1000).min(most);
            window.on_came(came, left, left, TRIP, now, 256);
            if came < sent {
                window.on_loss(left, left, 256);
            }
        }
    }

    #[test]
    fn loss_by_chance_leaves_what_comes_through() {
        for lost in [10, 50, 100, 300] {
            let mut window = Window::new(32, 256);
            run(&mut window, 200, lost, 1000);
            assert!(window.allowed() >= 32, "{} at {lost}", window.allowed());
        }
        let mut window = Window::new(4, 256);
        run(&mut window, 100, 100, 100);
        assert!((100..=160).contains(&window.allowed()), "{}", window.allowed());
    }

    #[test]
    fn a_narrow_path_narrows_the_window_and_silence_more() {
        let mut window = Window::new(8, 256);
        run(&mut window, 100, 0, 1000);
        assert_eq!(window.allowed(), 256, "nothing is lost");
        run(&mut window, 100, 0, 40);
        assert!((40..=62).contains(&window.allowed()), "{}", window.allowed());
        let before = window.allowed();
        (1..3).for_each(|times| window.on_silence(times));
        assert_eq!(window.allowed(), before);
        (3..20).for_each(|times| window.on_silence(times));
        assert_eq!(window.allowed(), LEAST);
    }

    #[test]
    fn one_round_trip_counts_one_loss() {
        let mut window = Window::new(100, 256);
        assert!(window.on_loss(5, 50, 256) && !window.on_loss(6, 50, 256) && !window.on_loss(50, 60, 256));
        assert_eq!(window.allowed(), 100, "as many as it began with");
        assert!(window.on_loss(51, 60, 256));
    }
}
