//! When a waiting thread polls, when it yields the processor, and when it sleeps.

use towline_core::time::{Duration, Instant};

use crate::settings::config::Config;
use crate::transports::local::is_oversubscribed;

/// Idle polls between two readings of the clock. A power of two.
const POLLS_PER_READING: u32 = 32;

/// How long a waiting thread polls and yields before it sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdlePolicy {
    /// Nanoseconds of polling. The thread yields once in [`POLLS_PER_READING`] polls.
    spin: u64,
    /// Nanoseconds, from the beginning, after which the thread sleeps.
    awake: u64,
    /// The longest sleep, in nanoseconds.
    max_sleep: u64,
}

impl IdlePolicy {
    /// As configured. Where this host has more ranks than processors, polling would only keep other ranks from running.
    pub fn new(config: &Config, local_ranks: usize) -> Self {
        let (spin, yields) = (u64::from(config.spin_us) * 1000, u64::from(config.yield_us) * 1000);
        // The engine checks a peer for progress four times within the stall time-out. A sleep is at most a quarter of that
        // interval, so a check is not much late.
        let look = if config.stall_timeout_ms == 0 { u32::MAX } else { config.stall_timeout_ms / 16 };
        let max_sleep = u64::from(config.idle_sleep_ms.min(look)).max(1) * 1_000_000;
        if is_oversubscribed(local_ranks) {
            // A thread that sleeps is given a processor soon after it is woken; a thread that yields waits for its turn.
            Self { spin: 0, awake: yields / 10, max_sleep }
        } else {
            Self { spin, awake: spin + yields, max_sleep }
        }
    }

    /// The longest sleep, in nanoseconds.
    pub const fn max_sleep(&self) -> u64 {
        self.max_sleep
    }
}

/// The longest sleep that [`blocked_sleep`] gives.
pub(crate) const MAX_BLOCKED_SLEEP: Duration = Duration::from_millis(1);

/// How long to sleep at a time, in nanoseconds, where a frame waits for room on its rail and nothing has come or left for
/// `idle`. Most rails wake a sleeping thread when they have room, but not all do. A frame that waited for long may wait a little
/// longer. `None`: do not sleep yet.
pub(crate) fn blocked_sleep(idle: Duration) -> Option<u64> {
    (idle.as_nanos() >= 100_000).then_some((idle.as_nanos() / 8).min(MAX_BLOCKED_SLEEP.as_nanos()))
}

/// For how long nothing has come.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    polls: u32,
    since: Option<Instant>,
    /// When the wait began, to within some polls.
    began: Option<Instant>,
    /// How many frames had been sent at the last call of [`restart_if_sent`](Self::restart_if_sent).
    sent: u64,
}

/// The next step of a waiting thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Poll again.
    Poll,
    /// Sleep until something comes.
    Sleep,
}

impl Idle {
    /// Something came.
    #[inline]
    pub fn reset(&mut self) {
        (self.polls, self.since) = (0, None);
    }

    /// Nothing came this time. Returns whether it is time to read the clock and ask [`step`](Self::step).
    #[inline]
    pub fn count(&mut self) -> bool {
        std::hint::spin_loop();
        self.polls = self.polls.wrapping_add(1);
        self.polls.is_multiple_of(POLLS_PER_READING)
    }

    /// Starts over if frames were sent since the last call, since a thread that sends is not idle. `sent` counts all frames so
    /// far. Returns whether it started over.
    pub fn restart_if_sent(&mut self, sent: u64) -> bool {
        let restarts = self.sent != sent;
        if restarts {
            (self.sent, self.polls, self.since) = (sent, 0, None);
        }
        restarts
    }

    /// When the wait began: `now`, if this was not asked before and there was no [`step`](Self::step).
    pub fn began(&mut self, now: Instant) -> Instant {
        *self.began.get_or_insert(now)
    }

    /// For how long nothing has come, counted from the first call of [`step`](Self::step).
    pub fn elapsed(&self, now: Instant) -> Duration {
        now.since(self.since.unwrap_or(now))
    }

    /// Decides by the time for which nothing has come.
    #[cold]
    pub fn step(&mut self, policy: &IdlePolicy, now: Instant) -> Step {
        self.began.get_or_insert(now);
        let since = *self.since.get_or_insert(now);
        let idle = now.since(since).as_nanos();
        if idle >= policy.spin {
            // From now on `count` asks for this function after each poll.
            self.polls = POLLS_PER_READING - 1;
        }
        if idle >= policy.awake {
            return Step::Sleep;
        }
        // Also in the phase of polling: the awaited peer may be waiting for this processor.
        rustix::thread::sched_yield();
        Step::Poll
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_then_yields_then_sleeps_and_starts_over() {
        let policy = IdlePolicy { spin: 1000, awake: 2000, max_sleep: 1 };
        let (mut idle, mut steps) = (Idle::default(), Vec::new());
        for poll in 0..=POLLS_PER_READING * 3 {
            if idle.count() {
                let now = Instant::from_nanos(u64::from(poll) * 20);
                steps.push((poll, idle.step(&policy, now)));
            }
        }
        // Once in a round while polling, then each time; asleep 2000 ns after the first look.
        assert_eq!(steps[0], (POLLS_PER_READING - 1, Step::Poll));
        assert_eq!(steps[1].0, 2 * POLLS_PER_READING - 1);
        assert_eq!(steps[2].0, 3 * POLLS_PER_READING - 1);
        assert!(steps[3..].iter().all(|(poll, _)| *poll >= 3 * POLLS_PER_READING));
        let now = Instant::from_nanos(10_000);
        assert_eq!(idle.step(&policy, now), Step::Sleep);
        idle.reset();
        assert_eq!(idle.step(&policy, now), Step::Poll);
    }

    #[test]
    fn more_ranks_than_processors_do_not_spin() {
        let config = Config::default();
        assert_eq!(IdlePolicy::new(&config, usize::MAX).spin, 0);
        assert_eq!(IdlePolicy::new(&config, 1).spin, 50_000);
    }
}
