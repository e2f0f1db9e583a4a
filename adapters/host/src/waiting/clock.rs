//! The engine's time: a stamp that is renewed now and then.

use rustix::time::{ClockId, clock_gettime};
use towline_core::time::Instant;

/// The time of the latest reading of the monotonic clock. It never goes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    now: Instant,
}

impl Clock {
    pub fn new() -> Self {
        Self { now: read(ClockId::Monotonic) }
    }

    #[inline]
    pub const fn now(self) -> Instant {
        self.now
    }

    /// Renews the stamp to the system's last tick, at most some milliseconds ago. Costs a few loads.
    #[inline]
    pub fn renew_coarsely(&mut self) {
        self.now = self.now.max(read(ClockId::MonotonicCoarse));
    }

    /// Renews the stamp to the present moment, and returns it.
    pub fn renew(&mut self) -> Instant {
        self.now = self.now.max(read(ClockId::Monotonic));
        self.now
    }
}

#[inline]
fn read(clock: ClockId) -> Instant {
    let time = clock_gettime(clock);
    Instant::from_nanos((time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64))
}
