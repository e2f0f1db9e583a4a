//! The congestion window: how many frames may be in flight to a peer.

use zerocopy::FromZeros;

/// The smallest congestion window, in frames.
const LEAST: u32 = 4;
/// From this many time-outs in a row on, each time-out halves the window, down to `LEAST`.
pub(super) const MAX_SILENCES: u8 = 3;
/// How many round trips an age has.
const AGE: u8 = 8;

/// A congestion window in frames. It grows as the window of TCP does (RFC 5681), and shrinks by three tenths, at most once per
/// round trip. But rails may lose frames by chance, too. So a loss does not make the window smaller than its initial size, or
/// than one and a half times the number of frames that recently arrived in the time of the shortest round trip. If a queue
/// overflows, fewer frames arrive in that time.
///
/// A transmission is named by its count, as in [`LossDetection`](super::path::LossDetection).
#[derive(FromZeros, Clone, Copy, Debug)]
pub(super) struct CongestionWindow {
    allowed: u32,
    /// Where slow start ends.
    threshold: u32,
    /// After slow start: how many frames were acknowledged since the window last grew.
    fraction: u32,
    initial: u32,
    /// How many frames arrived in this round trip.
    arrived: u32,
    /// How many round trips of this age are over.
    rounds: u8,
    /// Time-outs in a row.
    timeouts: u8,
    /// The most frames that arrived in the time of the shortest round trip: in this age, in the one before.
    carried: [u32; 2],
    /// The round trip is over when a transmission after this one is acknowledged.
    round_ends: u64,
    /// When the round trip began.
    round_began: u64,
    /// The last transmission at the time of the last loss. The loss of a transmission up to this one belongs to the same event.
    recovered: u64,
}

impl CongestionWindow {
    /// The window of a link that has sent nothing.
    pub fn new(initial: u32, most: u32) -> Self {
        Self { allowed: initial, initial, threshold: most, ..Self::new_zeroed() }
    }

    /// How many frames may be in flight.
    pub const fn allowed(&self) -> u32 {
        self.allowed
    }

    /// Time-outs in a row, since a frame was acknowledged or the peer sent a nack.
    pub const fn timeouts(&self) -> u8 {
        self.timeouts
    }

    /// The same window after this many time-outs.
    #[cfg(test)]
    pub const fn with_timeouts(self, timeouts: u8) -> Self {
        Self { timeouts, ..self }
    }

    /// The peer has answered, although it has acknowledged nothing.
    pub const fn on_answer(&mut self) {
        self.timeouts = 0;
    }

    fn floor(&self, most: u32) -> u32 {
        let carried = self.carried.iter().copied().fold(0, u32::max);
        self.initial.max(carried.saturating_add(carried / 2)).min(most)
    }

    /// `count` frames were acknowledged, the last transmission among them being the `newest` of `sent`. `least` is the shortest
    /// round trip in nanoseconds.
    pub fn on_acked(&mut self, count: u32, newest: u64, sent: u64, least: u64, now: u64, most: u32) {
        self.timeouts = 0;
        self.arrived = self.arrived.saturating_add(count);
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
            self.end_round(sent, least, now);
            self.allowed = self.allowed.max(self.floor(most));
        }
    }

    fn end_round(&mut self, sent: u64, least: u64, now: u64) {
        let took = now.saturating_sub(self.round_began).max(least);
        let carried = u64::from(self.arrived).saturating_mul(least).checked_div(took).unwrap_or(0);
        if self.round_began != 0
            && let [here, _] = &mut self.carried
        {
            *here = (*here).max(carried.min(u64::from(u32::MAX)) as u32);
        }
        (self.arrived, self.round_ends, self.round_began) = (0, sent, now.max(1));
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds >= AGE {
            let [here, _] = self.carried;
            (self.rounds, self.carried) = (0, [0, here]);
        }
    }

    /// The `lost`-th of `sent` transmissions is lost. Returns whether that is the first loss of a round trip.
    pub fn on_loss(&mut self, lost: u64, sent: u64, most: u32) -> bool {
        if lost <= self.recovered {
            return false;
        }
        let less = u64::from(self.allowed.min(most)).saturating_mul(7) / 10;
        self.allowed = (less as u32).max(self.floor(most)).max(LEAST);
        (self.threshold, self.recovered, self.fraction) = (self.allowed, sent, 0);
        true
    }

    /// Nothing was acknowledged in time.
    pub fn on_timeout(&mut self) {
        self.timeouts = self.timeouts.saturating_add(1);
        if self.timeouts < MAX_SILENCES {
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

    /// Runs this many round trips. Of a thousand frames `lost` do not arrive, and the path carries `most` in a round trip.
    fn run(window: &mut CongestionWindow, rounds: u64, lost: u32, most: u32) {
        let (mut left, mut now) = (window.recovered.max(window.round_ends), 1);
        for _ in 0..rounds {
            let sent = window.allowed();
            left += u64::from(sent);
            now += TRIP;
            let came = (sent - sent * lost / 1000).min(most);
            window.on_acked(came, left, left, TRIP, now, 256);
            if came < sent {
                window.on_loss(left, left, 256);
            }
        }
    }

    #[test]
    fn loss_by_chance_leaves_the_window_that_the_path_carries() {
        for lost in [10, 50, 100, 300] {
            let mut window = CongestionWindow::new(32, 256);
            run(&mut window, 200, lost, 1000);
            assert!(window.allowed() >= 32, "{} at {lost}", window.allowed());
        }
        let mut window = CongestionWindow::new(4, 256);
        run(&mut window, 100, 100, 100);
        assert!((100..=160).contains(&window.allowed()), "{}", window.allowed());
    }

    #[test]
    fn a_narrow_path_narrows_the_window_and_timeouts_do_so_more() {
        let mut window = CongestionWindow::new(8, 256);
        run(&mut window, 100, 0, 1000);
        assert_eq!(window.allowed(), 256, "nothing is lost");
        run(&mut window, 100, 0, 40);
        assert!((40..=62).contains(&window.allowed()), "{}", window.allowed());
        let before = window.allowed();
        (1..3).for_each(|_| window.on_timeout());
        assert_eq!(window.allowed(), before);
        (3..20).for_each(|_| window.on_timeout());
        assert_eq!(window.allowed(), LEAST);
    }

    #[test]
    fn one_round_trip_counts_one_loss() {
        let mut window = CongestionWindow::new(100, 256);
        assert!(window.on_loss(5, 50, 256) && !window.on_loss(6, 50, 256) && !window.on_loss(50, 60, 256));
        assert_eq!(window.allowed(), 100, "as many as it began with");
        assert!(window.on_loss(51, 60, 256));
    }
}
