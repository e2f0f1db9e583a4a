//! How fast datagrams may leave: a bucket of bytes that fills with time.

use towline_core::time::{Duration, Instant};

/// The bucket holds what comes in this time.
const DEPTH_NANOS: u64 = 1_000_000;

/// Bytes that may leave. What leaves at once may exceed them; then nothing does until that is made good.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Bytes in a microsecond, which is megabytes per second; 0: as fast as it goes.
    rate: u64,
    /// Bytes times 1000 that may leave now.
    credit: i64,
    last: Instant,
}

impl Pace {
    pub(crate) const fn new(megabytes_per_second: u32) -> Self {
        Self { rate: megabytes_per_second as u64, credit: 0, last: Instant::ZERO }
    }

    /// Bytes that may leave now.
    #[inline]
    pub(crate) fn allowance(&mut self, now: Instant) -> u64 {
        if self.rate == 0 {
            return u64::MAX;
        }
        // Bytes per microsecond times nanoseconds: thousandths of bytes.
        let nanos = now.since(self.last).as_nanos().min(i32::MAX as u64);
        self.last = now;
        let most = (self.rate * DEPTH_NANOS) as i64;
        self.credit = self.credit.saturating_add((self.rate * nanos) as i64).min(most);
        (self.credit / 1000).max(0) as u64
    }

    #[inline]
    pub(crate) fn spend(&mut self, bytes: u64) {
        if self.rate != 0 {
            self.credit -= (bytes * 1000) as i64;
        }
    }

    /// When something may leave again.
    pub(crate) fn next(&self) -> Instant {
        let owed = 1000i64.saturating_sub(self.credit).max(0) as u64;
        self.last + Duration::from_nanos(owed.div_ceil(self.rate.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lets_a_seconds_bytes_out_however_it_is_cut() {
        let mut pace = Pace::new(50);
        let (mut now, mut sent) = (Instant::from_nanos(1), 0u64);
        while now < Instant::from_nanos(1_000_000_000) {
            if pace.allowance(now) > 0 {
                pace.spend(60_000);
                sent += 60_000;
            } else {
                assert!(pace.next() > now);
                now = pace.next();
                assert!(pace.allowance(now) > 0, "not earlier than it helps");
            }
        }
        assert!((49_900_000..50_200_000).contains(&sent), "{sent}");
        assert_eq!(Pace::new(0).allowance(now), u64::MAX);
    }
}
