//! When a waiting thread polls, yields the processor, or sleeps.

use towline_core::time::{Duration, Instant};

use crate::settings::config::Config;

/// Idle polls between two readings of the clock.
const POLLS_PER_READING: u32 = 32;
/// The same where ranks share processors: a thread that polls keeps the awaited rank from running.
const POLLS_PER_READING_IF_SHARED: u32 = 2;

/// A yield that lasts longer, in nanoseconds, gave a whole time slice to another program. Where ranks share processors, it is this
/// for each of them, since a yield lets all of them run.
const LONG_YIELD: u64 = 1_000_000;
/// Long yields in a row that are no reason to avoid yields, where ranks share processors. While they set up what they share, each may
/// run for long.
const PATIENCE: u32 = 4;
/// Nanoseconds without yields after the first long one. They double with each further one.
const FIRST_BREAK: u64 = 100_000_000;
/// How many yields must have helped since the last long one, so that a further long one is worth it.
const ENOUGH_HELP: u32 = 16;
/// The longest time without yields, in nanoseconds.
const LONGEST_BREAK: u64 = 6_400_000_000;

/// How long a waiting thread polls and yields before it sleeps.
///
/// A thread polls first where each rank of this host can have a processor of its own. Then it yields, since the awaited peer may run on
/// this processor nevertheless. A yield costs little if only that peer, or no other task, is runnable. If another program is, it
/// keeps the processor for a time slice of a few milliseconds. A thread that sleeps, in contrast, gets the processor back as soon as it
/// is woken. So a thread yields while it polls only if the last yield helped. After a long yield, it does not yield for a while and
/// sleeps earlier, unless many yields have helped.
///
/// Where ranks share processors, a yield takes a turn of each of them. So the times are longer there by their number, and several long
/// yields must follow each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdlePolicy {
    /// Idle polls between two calls of [`Idle::step`].
    polls: u32,
    /// Nanoseconds of polling.
    spin: u64,
    /// Nanoseconds, from the beginning, after which the thread sleeps.
    awake: u64,
    /// The longest sleep, in nanoseconds.
    max_sleep: u64,
    /// Whether the last yield brought an event at once, so a peer shares this processor.
    yields_help: bool,
    /// The length of a yield, in nanoseconds, from which on it is long.
    long_yield: u64,
    /// How many yields have helped since the last long one.
    helped: u32,
    /// How many further long yields are no reason to avoid yields.
    patience: u32,
    /// `patience` at the beginning, and after many yields that helped.
    most_patience: u32,
    /// Until when the thread does not yield.
    no_yield_until: Instant,
    /// Nanoseconds without yields after the next long one.
    next_break: u64,
}

impl IdlePolicy {
    /// As configured. `sharing`: how many contexts share a processor. If they do, polling would only keep others from running.
    pub fn new(config: &Config, sharing: u32) -> Self {
        let sharing = u64::from(sharing.max(1));
        let (spin, yields) = (u64::from(config.spin_us) * 1000, u64::from(config.yield_us) * 1000 * sharing);
        // The engine checks a peer for progress four times within the stall time-out. A sleep is at most a quarter of that
        // interval, so a check is not much late.
        let look = if config.stall_timeout_ms == 0 { u32::MAX } else { config.stall_timeout_ms / 16 };
        let max_sleep = u64::from(config.idle_sleep_ms.min(look)).max(1) * 1_000_000;
        let (polls, spin, patience) = match sharing {
            1 => (POLLS_PER_READING, spin, 0),
            _ => (POLLS_PER_READING_IF_SHARED, 0, PATIENCE),
        };
        Self {
            polls,
            spin,
            awake: spin + yields,
            max_sleep,
            yields_help: false,
            long_yield: LONG_YIELD * sharing,
            helped: 0,
            patience,
            most_patience: patience,
            no_yield_until: Instant::from_nanos(0),
            next_break: FIRST_BREAK,
        }
    }

    /// The longest sleep, in nanoseconds.
    pub const fn max_sleep(&self) -> u64 {
        self.max_sleep
    }

    /// A yield began at `before` and ended at `after`. `helped`: there was an event right after it.
    pub fn note_yield(&mut self, before: Instant, after: Instant, helped: bool) {
        self.yields_help = helped;
        if after.since(before).as_nanos() < self.long_yield {
            self.helped = self.helped.saturating_add(helped.into());
            if before.since(self.no_yield_until).as_nanos() >= self.next_break {
                // Yields have been short for as long as they were avoided before.
                self.next_break = FIRST_BREAK;
            }
        } else if std::mem::take(&mut self.helped) >= ENOUGH_HELP {
            self.patience = self.most_patience;
        } else if self.patience > 0 {
            self.patience -= 1;
        } else {
            self.no_yield_until = after + Duration::from_nanos(self.next_break);
            self.next_break = (2 * self.next_break).min(LONGEST_BREAK);
        }
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
    /// Yield the processor, poll again, and tell [`IdlePolicy::note_yield`].
    Yield,
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
    pub fn count(&mut self, policy: &IdlePolicy) -> bool {
        std::hint::spin_loop();
        self.polls = self.polls.wrapping_add(1);
        self.polls >= policy.polls
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
        let yields = now >= policy.no_yield_until;
        if idle >= if yields { policy.awake } else { policy.spin } {
            self.polls = policy.polls;
            return Step::Sleep;
        }
        // After the phase of polling, `count` asks for this function after each poll.
        self.polls = if idle >= policy.spin { policy.polls } else { 0 };
        if yields && (idle >= policy.spin || policy.yields_help) { Step::Yield } else { Step::Poll }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPINNING: IdlePolicy = IdlePolicy {
        polls: POLLS_PER_READING,
        spin: 1000,
        awake: 2000,
        max_sleep: 1,
        yields_help: false,
        long_yield: LONG_YIELD,
        helped: 0,
        patience: 0,
        most_patience: 0,
        no_yield_until: Instant::from_nanos(0),
        next_break: FIRST_BREAK,
    };

    /// The polls of 20 ns after which a thread takes a step, up to the first sleep.
    fn steps(policy: &IdlePolicy) -> Vec<(u32, Step)> {
        let (mut idle, mut steps) = (Idle::default(), Vec::new());
        for poll in 1..1000 {
            if idle.count(policy) {
                steps.push((poll, idle.step(policy, Instant::from_nanos(u64::from(poll) * 20))));
                if steps.last().is_some_and(|(_, step)| *step == Step::Sleep) {
                    break;
                }
            }
        }
        steps
    }

    #[test]
    fn polls_then_yields_then_sleeps() {
        // It reads the clock once in a round while it polls, then each time; it sleeps 2000 ns after the first reading.
        let polling = [(32, Step::Poll), (64, Step::Poll)];
        let yielding = (96..132).map(|poll| (poll, Step::Yield)).chain([(132, Step::Sleep)]);
        let expected: Vec<_> = polling.into_iter().chain(yielding).collect();
        assert_eq!(steps(&SPINNING), expected);
    }

    #[test]
    fn yields_while_it_polls_if_that_helps() {
        let mut policy = SPINNING;
        policy.note_yield(Instant::from_nanos(10), Instant::from_nanos(20), true);
        assert_eq!(steps(&policy)[..3], [(32, Step::Yield), (64, Step::Yield), (96, Step::Yield)]);
        policy.note_yield(Instant::from_nanos(10), Instant::from_nanos(20), false);
        assert_eq!(steps(&policy), steps(&SPINNING));
    }

    #[test]
    fn a_thread_that_shares_its_processor_yields_at_once() {
        let policy = IdlePolicy { polls: POLLS_PER_READING_IF_SHARED, spin: 0, awake: 100, ..SPINNING };
        let expected: Vec<_> = (2..7).map(|poll| (poll, Step::Yield)).chain([(7, Step::Sleep)]).collect();
        assert_eq!(steps(&policy), expected);
    }

    #[test]
    fn starts_over_when_something_came() {
        let mut idle = Idle::default();
        assert_eq!(idle.step(&SPINNING, Instant::from_nanos(10)), Step::Poll);
        assert_eq!(idle.step(&SPINNING, Instant::from_nanos(2010)), Step::Sleep);
        idle.reset();
        assert_eq!(idle.step(&SPINNING, Instant::from_nanos(9000)), Step::Poll);
    }

    #[test]
    fn after_a_yield_of_a_time_slice_a_thread_sleeps_instead() {
        let mut policy = SPINNING;
        let at = Instant::from_nanos;
        policy.note_yield(at(5), at(5 + LONG_YIELD - 1), false);
        assert_eq!(steps(&policy), steps(&SPINNING), "a shorter one changes nothing");
        policy.note_yield(at(0), at(LONG_YIELD), true);
        // It sleeps at the end of the phase of polling.
        assert_eq!(steps(&policy), [(32, Step::Poll), (64, Step::Poll), (96, Step::Sleep)]);

        let mut idle = Idle::default();
        let end = LONG_YIELD + FIRST_BREAK;
        assert_eq!(idle.step(&policy, at(end - 1)), Step::Poll);
        assert_eq!(idle.step(&policy, at(end)), Step::Yield);
        // A further long yield doubles the break, up to a limit.
        policy.note_yield(at(end), at(end + LONG_YIELD), true);
        assert_eq!(policy.no_yield_until, at(end + LONG_YIELD + 2 * FIRST_BREAK));
        for _ in 0..20 {
            policy.note_yield(at(end), at(end + LONG_YIELD), true);
        }
        assert_eq!(policy.no_yield_until, at(end + LONG_YIELD + LONGEST_BREAK));
        // Short yields for as long as the break end that.
        let later = end + LONG_YIELD + 2 * LONGEST_BREAK;
        policy.note_yield(at(later - 1), at(later), true);
        assert_eq!(policy.next_break, LONGEST_BREAK);
        policy.note_yield(at(later), at(later), true);
        assert_eq!(policy.next_break, FIRST_BREAK);
    }

    #[test]
    fn a_long_yield_among_many_that_helped_changes_nothing() {
        let at = Instant::from_nanos;
        for (helped, step) in [(ENOUGH_HELP - 1, Step::Poll), (ENOUGH_HELP, Step::Yield)] {
            let mut policy = SPINNING;
            for _ in 0..helped {
                policy.note_yield(at(0), at(1), true);
            }
            policy.note_yield(at(0), at(LONG_YIELD), true);
            assert_eq!(steps(&policy)[0].1, step, "after {helped} that helped");
        }
    }

    #[test]
    fn ranks_that_share_processors_do_not_spin_and_yield_for_longer() {
        let config = Config::default();
        let times = |sharing| {
            let policy = IdlePolicy::new(&config, sharing);
            (policy.spin, policy.awake, policy.long_yield)
        };
        assert_eq!(times(1), (50_000, 250_000, LONG_YIELD));
        assert_eq!(times(8), (0, 1_600_000, 8 * LONG_YIELD));
    }

    #[test]
    fn ranks_that_share_processors_avoid_yields_after_several_long_ones_only() {
        let at = Instant::from_nanos;
        let mut policy = IdlePolicy::new(&Config::default(), 2);
        let avoids = |policy: &IdlePolicy| policy.no_yield_until > at(0);
        for _ in 0..PATIENCE {
            policy.note_yield(at(0), at(2 * LONG_YIELD), false);
        }
        assert!(!avoids(&policy));
        let mut helped = policy;
        (0..ENOUGH_HELP).for_each(|_| helped.note_yield(at(0), at(2 * LONG_YIELD - 1), true));
        for _ in 0..=PATIENCE {
            helped.note_yield(at(0), at(2 * LONG_YIELD), false);
        }
        assert!(!avoids(&helped), "many that helped begin the count anew");
        policy.note_yield(at(0), at(2 * LONG_YIELD), false);
        assert!(avoids(&policy));
    }
}
