//! The stall time-out and the time of the next check.

use crate::time::Instant;

/// Whether there are stall time-outs: the feature `stall`. Code behind this constant is not linked otherwise.
pub(in crate::pml) const ENABLED: bool = cfg!(feature = "stall");

/// The stall time-out and the time of the next check.
#[derive(Clone, Copy, Debug)]
pub(in crate::pml) struct StallClock {
    /// Nanoseconds between checks. 0 without a time-out.
    pub(super) gap: u64,
    /// The time of the next check, in nanoseconds. `u64::MAX` without a time-out.
    pub(super) at: u64,
    /// Rounds of progress since the check became due.
    pub(super) rounds: u32,
}

impl StallClock {
    pub const OFF: Self = Self { gap: 0, at: u64::MAX, rounds: 0 };

    /// Whether a check is due.
    #[inline]
    pub const fn is_due(&self, now: Instant) -> bool {
        ENABLED && now.as_nanos() >= self.at
    }

    /// Whether there is a time-out.
    pub const fn is_on(&self) -> bool {
        ENABLED && self.gap != 0
    }
}
