//! The clock of a link: the time of the last poll, and for how long the link has polled the rail below.

use super::paths::SEVERAL;
use crate::time::Instant;

/// No time and no duration is longer, in nanoseconds: 146 years. So the sum of two of them needs no check.
pub(super) const FOREVER: u64 = 1 << 62;

/// Times in nanoseconds. The clock does not advance between polls, and never goes back.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// The time of the last poll.
    pub now: u64,
    /// No peer counts as dead before this time, since the caller did not poll for a while.
    pub grace: u64,
    /// The time of the first poll. Events before it count as if they happened then.
    pub began: u64,
    /// When the rail below last had no more events.
    pub heard_all: u64,
    /// For how long the rail below was polled since `heard_all`. Pauses of the caller do not count.
    listened: u64,
}

impl Clock {
    /// Sets the time. After a pause no peer counts as dead before the frames that arrived meanwhile have been read. `timeout` is
    /// the least time for which a peer may be silent.
    pub fn tick(&mut self, now: Instant, timeout: u64) {
        let now = now.as_nanos().min(FOREVER).max(self.now);
        if now.wrapping_sub(self.now) > timeout / 2 {
            self.grace = now.wrapping_add(timeout / 4);
        }
        if self.now == 0 {
            self.began = now;
        }
        if SEVERAL {
            self.listened = self.listened.saturating_add(now.saturating_sub(self.now).min(timeout / 64));
        }
        self.now = now;
    }

    /// The rail below has no more events.
    pub const fn on_idle(&mut self) {
        (self.heard_all, self.listened) = (self.now, 0);
    }

    /// Whether frames of silent peers may be unread in the rail below, since there was no time to read all of them. If the rail
    /// below still has events after half of `timeout`, some peer floods this side. Then this returns `false`, so that the
    /// failure of another peer is noticed in time.
    pub const fn is_behind(&self, timeout: u64) -> bool {
        // The frames of a link's only peer can keep none of that peer's unread.
        SEVERAL && self.now != self.heard_all && self.listened <= timeout / 2
    }
}
