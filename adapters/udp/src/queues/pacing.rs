//! Pacing: a token bucket that limits the rate at which datagrams are sent.

use towline_core::time::{Duration, Instant};

/// The bucket holds the bytes of this time.
const DEPTH_NANOS: u64 = 1_000_000;

/// A token bucket. One call may send more than its bytes; then nothing may be sent until the difference has come in.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    /// Bytes per microsecond, which is megabytes per second; 0: no limit.
    rate: u64,
    /// Bytes that may be sent now, times 1000.
    credit: i64,
    last: Instant,
}

impl TokenBucket {
    pub(crate) const fn new(megabytes_per_second: u32) -> Self {
        Self { rate: megabytes_per_second as u64, credit: 0, last: Instant::ZERO }
    }

    /// Bytes that may be sent now.
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

    /// When bytes may be sent again.
    pub(crate) fn next(&self) -> Instant {
        let owed = 1000i64.saturating_sub(self.credit).max(0) as u64;
        self.last + Duration::from_nanos(owed.div_ceil(self.rate.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_for_any_division_of_the_time() {
        let mut bucket = TokenBucket::new(50);
        let (mut now, mut sent) = (Instant::from_nanos(1), 0u64);
        while now < Instant::from_nanos(1_000_000_000) {
            if bucket.allowance(now) > 0 {
                bucket.spend(60_000);
                sent += 60_000;
            } else {
                assert!(bucket.next() > now);
                now = bucket.next();
                assert!(bucket.allowance(now) > 0, "no bytes at the promised time");
            }
        }
        assert!((49_900_000..50_200_000).contains(&sent), "{sent}");
        assert_eq!(TokenBucket::new(0).allowance(now), u64::MAX);
    }
}
