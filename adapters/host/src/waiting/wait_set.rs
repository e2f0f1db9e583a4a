//! The wait handles of all rails, on which a thread sleeps while nothing arrives.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use towline_core::pml::Rails;
use towline_core::time::Instant;

use super::notify::WakeupFd;
use crate::transports::rails::AnyRail;

/// The descriptor that a rail makes readable when something comes after it was armed. It stays the same as long as the rail exists.
/// `None` for a rail without one, and while shared memory has no room for one.
pub(crate) fn wait_fd(rail: &mut AnyRail) -> Option<BorrowedFd<'_>> {
    match rail {
        AnyRail::Sm(rail) => rail.wait_fd().ok(),
        rail => network_fd(rail),
    }
}

/// The wait handles of a context.
#[derive(Debug)]
pub(crate) enum WaitSet {
    /// No rail has a peer that could wake the context, or some rail has no wait handle. The context sleeps for short times.
    Timer,
    /// The futex of the only rail to other processes: the index of that rail, which is shared memory.
    Futex(usize),
    /// One epoll descriptor for all rails.
    Epoll(OwnedFd),
}

impl WaitSet {
    /// For the rails of a context that one thread uses, of which the first `polled` are polled, and for the bell of its DPU.
    pub fn new(rails: &mut [AnyRail], polled: usize, bell: Option<BorrowedFd<'_>>) -> std::io::Result<Self> {
        let outward = |rail: &AnyRail| !matches!(rail, AnyRail::Loopback(_));
        let mut others = rails.iter().take(polled).enumerate().filter(|(_, rail)| outward(rail));
        match (others.next(), others.next()) {
            (Some((index, AnyRail::Sm(_))), None) if bell.is_none() => Ok(Self::Futex(index)),
            (None, _) if bell.is_none() => Ok(Self::Timer),
            _ if rails.iter().any(|rail| matches!(rail, AnyRail::Dyn(_))) => Ok(Self::Timer),
            _ => Self::epoll(rails.get_mut(..polled).unwrap_or_default(), bell, None),
        }
    }

    /// For rails that several threads poll; `wakeup` wakes the thread that sleeps.
    pub fn for_threads(
        rails: &mut [AnyRail],
        bell: Option<BorrowedFd<'_>>,
        wakeup: &WakeupFd,
    ) -> std::io::Result<Self> {
        if rails.iter().any(|rail| matches!(rail, AnyRail::Dyn(_))) {
            Ok(Self::Timer)
        } else {
            Self::epoll(rails, bell, Some(wakeup))
        }
    }

    /// For rails that have wait handles, for the bell of a DPU, and for `wakeup`. If shared memory is so full that its handle finds no room, threads sleep
    /// for short times instead.
    pub fn epoll(
        rails: &mut [AnyRail],
        bell: Option<BorrowedFd<'_>>,
        wakeup: Option<&WakeupFd>,
    ) -> std::io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let watch = |fd: BorrowedFd<'_>| epoll::add(&set, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        for rail in rails {
            match rail {
                AnyRail::Sm(rail) => match rail.wait_fd() {
                    Ok(fd) => watch(fd)?,
                    Err(why) => {
                        log::warn!("waiting threads sleep for short times only, since a wait handle is missing: {why}");
                        return Ok(Self::Timer);
                    }
                },
                rail => network_fd(rail).map_or(Ok(()), watch)?,
            }
        }
        bell.map_or(Ok(()), watch)?;
        if let Some(wakeup) = wakeup {
            watch(wakeup.as_fd())?;
        }
        Ok(Self::Epoll(set))
    }

    /// Waits for the spares among these rails as well. They were not watched before they were used: until then, callers that are
    /// none of the job would keep waiting threads awake.
    pub fn watch_spares(&self, rails: &[AnyRail]) {
        let Self::Epoll(set) = self else { return };
        for fd in rails.iter().filter_map(network_fd) {
            // It fails for those that are watched already.
            let _ = epoll::add(set, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        }
    }

    /// Sleeps for at most `most` nanoseconds, or until a timer of a rail is due. The rails must be armed. May return early.
    pub fn sleep(&self, rails: &mut impl Rails<Rail = AnyRail>, most: u64, now: Instant) {
        let due = (0..rails.polled()).filter_map(|index| {
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
            Self::Timer | Self::Epoll(_) => self.sleep_for(nanos),
        }
    }

    /// Sleeps for at most `nanos` nanoseconds without access to the rails, so not on a futex of theirs. May return early.
    pub fn sleep_for(&self, nanos: u64) {
        match self {
            Self::Timer | Self::Futex(_) => std::thread::sleep(Duration::from_nanos(nanos.min(100_000))),
            Self::Epoll(set) => {
                let timeout =
                    Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
                let mut event = [const { std::mem::MaybeUninit::uninit() }; 1];
                // The next poll finds out why the sleep ended.
                let _ = epoll::wait(set, &mut event, Some(&timeout));
            }
        }
    }
}

/// The wait handle of a rail over a network.
fn network_fd(rail: &AnyRail) -> Option<BorrowedFd<'_>> {
    match rail {
        AnyRail::Tcp(rail) => Some(rail.as_fd()),
        AnyRail::LinkedTcp(rail) => Some(rail.raw().as_fd()),
        AnyRail::Udp(rail) => Some(rail.raw().as_fd()),
        AnyRail::Verbs(rail) => Some(rail.as_fd()),
        AnyRail::LinkedVerbs(rail) => Some(rail.raw().as_fd()),
        // A DPU that is a rail does not use the bell of its window: threads poll it from time to time. No context has a bundle.
        AnyRail::Dpu(_) | AnyRail::LinkedDpu(_) => None,
        AnyRail::Loopback(_) | AnyRail::Sm(_) | AnyRail::Bundled(_) | AnyRail::Dyn(_) => None,
    }
}
