//! When peers are looked at.

use crate::time::Instant;

/// When it is looked.
#[derive(Clone, Copy, Debug)]
pub(in crate::pml) struct Stall {
    /// Nanoseconds between looks, 0 where there is no time-out.
    pub(super) gap: u64,
    /// The next look; `u64::MAX` where there is no time-out.
    pub(super) at: u64,
    /// Rounds since it was due.
    pub(super) rounds: u32,
}

impl Stall {
    pub const OFF: Self = Self { gap: 0, at: u64::MAX, rounds: 0 };

    /// Whether a look is due.
    #[inline]
    pub const fn is_due(&self, now: Instant) -> bool {
        now.as_nanos() >= self.at
    }

    /// Whether looks are due at all.
    pub const fn is_on(&self) -> bool {
        self.gap != 0
    }
}
