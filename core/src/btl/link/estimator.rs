//! How long an acknowledgement takes: RFC 6298, in nanoseconds.

use zerocopy::FromZeros;

/// Smoothed time of a round trip, and how much it varies. Zeros: nothing is known yet.
#[derive(FromZeros, Clone, Copy, Debug, Default)]
pub(super) struct Estimator {
    smoothed: u64,
    varies: u64,
    least: u64,
}

impl Estimator {
    /// Takes in the time of one round trip; not of a frame that was sent twice (Karn).
    pub fn sample(&mut self, nanos: u64) {
        let nanos = nanos.clamp(1, 1 << 40);
        if self.smoothed == 0 {
            *self = Self { smoothed: nanos, varies: nanos / 2, least: nanos };
            return;
        }
        self.varies = (self.varies * 3 + self.smoothed.abs_diff(nanos)) / 4;
        self.smoothed = (self.smoothed * 7 + nanos) / 8;
        self.least = self.least.min(nanos);
    }

    /// The shortest round trip so far; 0 where there was none.
    pub const fn least(&self) -> u64 {
        self.least
    }

    /// When a frame counts as lost, if nothing is heard of it, after so many times that this was so already.
    pub fn timeout(&self, initial: u64, least: u64, most: u64, times: u32) -> u64 {
        let once = if self.smoothed == 0 { initial } else { self.smoothed + (self.varies * 4).max(1) };
        let once = once.max(least);
        once.checked_shl(times.min(40))
            .filter(|nanos| nanos >> times.min(40) == once)
            .unwrap_or(most)
            .min(most.max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_follow_rfc_6298() {
        let mut estimator = Estimator::default();
        assert_eq!(estimator.timeout(500, 10, 1000, 0), 500);
        estimator.sample(100);
        assert_eq!(estimator.timeout(500, 10, 1000, 0), 100 + 4 * 50);
        assert_eq!(estimator.timeout(500, 10, 1000, 1), 600);
        assert_eq!(estimator.timeout(500, 10, 1000, 2), 1000);
        assert_eq!(estimator.timeout(500, 10, 1000, u32::MAX), 1000);
        for _ in 0..100 {
            estimator.sample(100);
        }
        assert_eq!(estimator.timeout(500, 10, 1000, 0), 101);
        estimator.sample(50);
        assert_eq!(estimator.least(), 50);
        estimator.sample(u64::MAX);
        assert_eq!(estimator.timeout(1, 1, 77, 3), 77);
    }
}
