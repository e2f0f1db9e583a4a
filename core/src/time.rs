//! Points in time and durations, from the caller's clock. The core never reads a clock.

use core::ops::{Add, Sub};

/// A point in time: nanoseconds since an epoch that the caller chooses, the same for all calls on one engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Instant {
    nanos: u64,
}

impl Instant {
    /// The epoch itself.
    pub const ZERO: Self = Self { nanos: 0 };

    /// The instant `nanos` nanoseconds after the epoch. 64 bits last for 584 years.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self { nanos }
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.nanos
    }

    /// The time from `earlier` to `self`, zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration { nanos: self.nanos.saturating_sub(earlier.nanos) }
    }
}

/// A duration in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Duration {
    nanos: u64,
}

impl Duration {
    /// Zero nanoseconds.
    pub const ZERO: Self = Self { nanos: 0 };

    /// `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self { nanos }
    }

    /// `millis` milliseconds, or the longest duration if that is too long.
    pub const fn from_millis(millis: u64) -> Self {
        Self { nanos: millis.saturating_mul(1_000_000) }
    }

    /// `secs` seconds, or the longest duration if that is too long.
    pub const fn from_secs(secs: u64) -> Self {
        Self { nanos: secs.saturating_mul(1_000_000_000) }
    }

    /// The duration in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.nanos
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        Instant { nanos: self.nanos.saturating_add(duration.nanos) }
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_saturate_instead_of_wrapping() {
        let late = Instant::from_nanos(u64::MAX - 1);
        assert_eq!(late + Duration::from_secs(9), Instant::from_nanos(u64::MAX));
        assert_eq!(Instant::ZERO - late, Duration::ZERO);
        assert_eq!(Duration::from_secs(u64::MAX), Duration::from_nanos(u64::MAX));
    }
}
