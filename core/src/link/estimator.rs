//! The round trip estimator of RFC 6298, in nanoseconds.

use zerocopy::FromZeros;

use super::reordering::REORDERS;

/// The shortest round trip is forgotten after one to two ages of this length.
const AGE: u64 = 5_000_000_000;

/// The smoothed round trip, and its variation. Zeros: no round trip is known yet.
#[derive(FromZeros, Clone, Copy, Debug, Default)]
pub(super) struct Estimator {
    smoothed: u64,
    varies: u64,
    /// The shortest round trip: in this age, in the one before.
    least: [u64; 2],
    /// When this age began.
    began: u64,
}

impl Estimator {
    /// Takes the time of one round trip. The round trip of a frame that was sent twice is not known (Karn).
    pub fn sample(&mut self, nanos: u64, now: u64) {
        let nanos = nanos.clamp(1, 1 << 40);
        if self.smoothed == 0 {
            *self = Self { smoothed: nanos, varies: nanos / 2, least: [nanos; 2], began: now };
            return;
        }
        self.varies = (self.varies * 3 + self.smoothed.abs_diff(nanos)) / 4;
        self.smoothed = (self.smoothed * 7 + nanos) / 8;
        if !REORDERS {
            return; // the shortest is for frames that come late
        }
        let [here, _] = self.least;
        self.least = if now.saturating_sub(self.began) > AGE {
            self.began = now;
            [nanos, here]
        } else {
            let [_, before] = self.least;
            [here.min(nanos), before]
        };
    }

    /// The shortest recent round trip; 0: none is known.
    pub fn least(&self) -> u64 {
        if !REORDERS {
            return self.smoothed;
        }
        let [here, before] = self.least;
        here.min(before)
    }

    /// The smoothed round trip; 0: none is known.
    pub const fn smoothed(&self) -> u64 {
        self.smoothed
    }

    /// The time after which a tail loss probe is sent if nothing is acknowledged: at least two round trips (RFC 8985, 7.2),
    /// doubled `times` times. `delay` is how long the peer may delay an acknowledgement, and `initial` is the result while no
    /// round trip is known. `least` and `most` are bounds.
    pub fn timeout(&self, [initial, least, most, delay]: [u64; 4], times: u32) -> u64 {
        let varies = self.varies.wrapping_mul(4).max(self.smoothed); // no sample is longer than 2^40
        let once = if self.smoothed == 0 { initial } else { self.smoothed.wrapping_add(varies).wrapping_add(delay) };
        let once = once.max(least);
        let times = times.min(40);
        if once > most >> times { most.max(least) } else { once << times }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_two_round_trips_or_their_variation() {
        let mut estimator = Estimator::default();
        let bounds = [500, 10, 1000, 7];
        assert_eq!(estimator.timeout(bounds, 0), 500);
        estimator.sample(100, 1);
        assert_eq!(estimator.timeout(bounds, 0), 100 + 4 * 50 + 7);
        assert_eq!(estimator.timeout(bounds, 1), 614);
        assert_eq!(estimator.timeout(bounds, 2), 1000);
        assert_eq!(estimator.timeout(bounds, u32::MAX), 1000);
        for _ in 0..100 {
            estimator.sample(100, 1);
        }
        assert_eq!(estimator.timeout(bounds, 0), 207);
        estimator.sample(50, 1);
        assert_eq!(estimator.least(), 50);
        estimator.sample(u64::MAX, 1);
        assert_eq!(estimator.timeout([1, 1, 77, 0], 3), 77);
    }

    #[test]
    fn the_shortest_round_trip_is_forgotten_after_a_while() {
        let mut estimator = Estimator::default();
        estimator.sample(50, 1);
        estimator.sample(90, 2 + AGE);
        estimator.sample(80, 3 + AGE);
        assert_eq!(estimator.least(), 50);
        estimator.sample(95, 4 + AGE * 2);
        assert_eq!(estimator.least(), 80);
    }
}
