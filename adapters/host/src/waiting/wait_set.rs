//! What a rank does while nothing comes: poll, then let others run, then sleep until something comes.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use towline_core::pml::Rails;
use towline_core::time::Instant;

use crate::settings::config::Config;
use crate::transports::rails::AnyRail;

/// Idle polls between two readings of the clock. A power of two.
const ROUND: u32 = 32;

/// How patient a rank is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Nanoseconds of polling, in which others may run once in a round.
    spin: u64,
    /// Nanoseconds, from the begin, after which it sleeps.
    awake: u64,
    /// One sleep at most, in nanoseconds.
    nap: u64,
}

impl Patience {
    /// As configured; where this host has more ranks than processors, polling would only keep others from running.
    pub fn new(config: &Config, local_ranks: usize) -> Self {
        let (spin, yields) = (u64::from(config.spin_us) * 1000, u64::from(config.yield_us) * 1000);
        // Peers that may be given up for doing nothing are looked at four times in that time, and not much later than that.
        let look = if config.stall_timeout_ms == 0 { u32::MAX } else { config.stall_timeout_ms / 16 };
        let nap = u64::from(config.idle_sleep_ms.min(look)).max(1) * 1_000_000;
        if crowded(local_ranks) {
            // One that sleeps is given a processor soon after it is woken; one that yields waits for its turn.
            Self { spin: 0, awake: yields / 10, nap }
        } else {
            Self { spin, awake: spin + yields, nap }
        }
    }
}

impl Patience {
    /// One sleep at most, in nanoseconds.
    pub const fn nap(&self) -> u64 {
        self.nap
    }
}

/// What [`short_nap`] gives at most.
pub(crate) const LONGEST_NAP: towline_core::time::Duration = towline_core::time::Duration::from_millis(1);

/// How long to sleep at a time, in nanoseconds, where something is held back for which no rail has room, and nothing has come
/// or left for `idle`: most rails wake who sleeps when there is room, not all. What waited so long may wait a little longer.
/// `None`: not yet.
pub(crate) fn short_nap(idle: towline_core::time::Duration) -> Option<u64> {
    (idle.as_nanos() >= 100_000).then_some((idle.as_nanos() / 8).min(LONGEST_NAP.as_nanos()))
}

/// Whether this host has more ranks than processors.
pub(crate) fn crowded(local_ranks: usize) -> bool {
    local_ranks > std::thread::available_parallelism().map_or(1, usize::from)
}

/// How long nothing came.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    polls: u32,
    since: Option<Instant>,
    /// Frames that had left when this was last looked at.
    left: u64,
}

/// What to do now.
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
        *self = Self { left: self.left, ..Self::default() };
    }

    /// Nothing came this time: whether it is time to look at the clock and ask [`step`](Self::step).
    #[inline]
    pub fn count(&mut self) -> bool {
        std::hint::spin_loop();
        self.polls = self.polls.wrapping_add(1);
        self.polls.is_multiple_of(ROUND)
    }

    /// Begins anew if frames have left since this was last asked, of which there were so many in all: who sends is not idle.
    pub fn is_broken(&mut self, left: u64) -> bool {
        let broken = self.left != left;
        if broken {
            *self = Self { left, ..Self::default() };
        }
        broken
    }

    /// How long nothing came, as far as it was asked for.
    pub fn span(&self, now: Instant) -> towline_core::time::Duration {
        now.since(self.since.unwrap_or(now))
    }

    /// Decides by how long nothing came.
    #[cold]
    pub fn step(&mut self, patience: &Patience, now: Instant) -> Step {
        let since = *self.since.get_or_insert(now);
        let idle = now.since(since).as_nanos();
        if idle >= patience.spin {
            // From now on this is asked after each poll.
            self.polls = ROUND - 1;
        }
        if idle >= patience.awake {
            return Step::Sleep;
        }
        // In the first phase too: whoever we wait for may be waiting for this very processor.
        rustix::thread::sched_yield();
        Step::Poll
    }
}

/// On what a rank sleeps.
#[derive(Debug)]
pub(crate) enum Bed {
    /// There is nothing that could wake it, or some rail has no wait handle: short naps.
    Naps,
    /// The futex of the only rail that others reach us by.
    Futex(usize),
    /// One descriptor for all rails.
    Epoll(OwnedFd),
}

impl Bed {
    /// For these rails.
    pub fn make(rails: &mut [AnyRail]) -> std::io::Result<Self> {
        let outward = |rail: &AnyRail| !matches!(rail, AnyRail::Loopback(_));
        let mut others = rails.iter().enumerate().filter(|(_, rail)| outward(rail));
        match (others.next(), others.next()) {
            (Some((index, AnyRail::Sm(_))), None) => Ok(Self::Futex(index)),
            (None, _) => Ok(Self::Naps),
            _ if rails.iter().any(|rail| matches!(rail, AnyRail::Dyn(_))) => Ok(Self::Naps),
            _ => Self::epoll(rails, None),
        }
    }

    /// For these rails, of which any of several threads may take care; the bell calls the one who sleeps.
    pub fn for_several(rails: &mut [AnyRail], bell: &OwnedFd) -> std::io::Result<Self> {
        if rails.iter().any(|rail| matches!(rail, AnyRail::Dyn(_))) {
            Ok(Self::Naps)
        } else {
            Self::epoll(rails, Some(bell))
        }
    }

    /// For these rails, and for a descriptor of somebody else's.
    pub fn epoll(rails: &mut [AnyRail], other: Option<&OwnedFd>) -> std::io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watch =
            |fd: rustix::fd::BorrowedFd<'_>| epoll::add(&set, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        for rail in rails {
            match rail {
                AnyRail::Sm(rail) => {
                    watch(rail.wait_fd().map_err(std::io::Error::other)?)?;
                }
                AnyRail::Tcp(rail) => {
                    watch(rail.as_fd())?;
                }
                AnyRail::LinkedTcp(rail) => {
                    watch(rail.raw().as_fd())?;
                }
                AnyRail::Udp(rail) => {
                    watch(rail.raw().as_fd())?;
                }
                AnyRail::Verbs(rail) => {
                    watch(rail.as_fd())?;
                }
                AnyRail::LinkedVerbs(rail) => {
                    watch(rail.raw().as_fd())?;
                }
                AnyRail::Loopback(_) | AnyRail::Dyn(_) => {}
            }
        }
        if let Some(other) = other {
            watch(other.as_fd())?;
        }
        Ok(Self::Epoll(set))
    }

    /// Sleeps for so many nanoseconds at most; the rails were armed. May come back early.
    pub fn sleep(&self, rails: &mut impl Rails<Rail = AnyRail>, most: u64, now: Instant) {
        let due = (0..rails.count()).filter_map(|index| {
            use towline_core::rail::Rail as _;
            rails.rail(index)?.poll_at()
        });
        let nanos = due.map(|due| due.since(now).as_nanos()).min().unwrap_or(u64::MAX).min(most);
        match self {
            Self::Futex(index) => {
                if let Some(AnyRail::Sm(rail)) = rails.rail_mut(*index) {
                    rail.wait(Some(Duration::from_nanos(nanos)));
                }
            }
            Self::Naps | Self::Epoll(_) => self.sleep_for(nanos),
        }
    }

    /// Sleeps without the rails at hand; not on a futex of theirs. May come back early.
    pub fn sleep_for(&self, nanos: u64) {
        match self {
            Self::Naps | Self::Futex(_) => std::thread::sleep(Duration::from_nanos(nanos.min(100_000))),
            Self::Epoll(set) => {
                let timeout =
                    Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
                let mut event = [const { std::mem::MaybeUninit::uninit() }; 1];
                // Whatever ends the sleep, the next poll finds out.
                let _ = epoll::wait(set, &mut event, Some(&timeout));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_then_yields_then_sleeps_and_begins_anew() {
        let patience = Patience { spin: 1000, awake: 2000, nap: 1 };
        let (mut idle, mut steps) = (Idle::default(), Vec::new());
        for poll in 0..=ROUND * 3 {
            if idle.count() {
                let now = Instant::from_nanos(u64::from(poll) * 20);
                steps.push((poll, idle.step(&patience, now)));
            }
        }
        // Once in a round while polling, then each time; asleep 2000 ns after the first look.
        assert_eq!(steps[0], (ROUND - 1, Step::Poll));
        assert_eq!(steps[1].0, 2 * ROUND - 1);
        assert_eq!(steps[2].0, 3 * ROUND - 1);
        assert!(steps[3..].iter().all(|(poll, _)| *poll >= 3 * ROUND));
        let now = Instant::from_nanos(10_000);
        assert_eq!(idle.step(&patience, now), Step::Sleep);
        idle.reset();
        assert_eq!(idle.step(&patience, now), Step::Poll);
    }

    #[test]
    fn more_ranks_than_processors_do_not_spin() {
        let config = Config::default();
        assert_eq!(Patience::new(&config, usize::MAX).spin, 0);
        assert_eq!(Patience::new(&config, 1).spin, 50_000);
    }
}
