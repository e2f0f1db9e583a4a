//! One descriptor for all events that a task may have to be woken for: the wait handles of the rails, a timer, and a wake-up.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use towline_core::time::Instant;

use super::notify::WakeupFd;
use super::wait_set::wait_fd;
use crate::transports::rails::AnyRail;

const RAIL: u64 = 0;
const TIMER: u64 = 1;
const WAKEUP: u64 = 2;

/// An epoll descriptor. A rail makes it readable once after each [`arm`](Self::arm).
#[derive(Debug)]
pub(crate) struct WaitHandle {
    set: OwnedFd,
    timer: OwnedFd,
    wakeup: WakeupFd,
}

/// Which events came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ready {
    pub rails: bool,
    pub timer: bool,
    pub wakeup: bool,
}

impl WaitHandle {
    pub fn new() -> std::io::Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer =
            rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        let wakeup = WakeupFd::new()?;
        epoll::add(&set, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        epoll::add(&set, &wakeup, EventData::new_u64(WAKEUP), EventFlags::IN)?;
        Ok(Self { set, timer, wakeup })
    }

    /// Watches the rails, which must be armed, and the bell of a DPU for one event of each. One that is ready already counts. Returns
    /// false if some rail cannot be watched, and so must be polled.
    pub fn arm(&self, rails: &mut [AnyRail], bell: Option<BorrowedFd<'_>>) -> bool {
        let mut all = bell.is_none_or(|bell| self.watch_once(bell));
        for rail in rails {
            if matches!(rail, AnyRail::Loopback(_)) {
                continue; // only this process sends to it
            }
            let Some(fd) = wait_fd(rail) else {
                all = false;
                continue;
            };
            all &= self.watch_once(fd);
        }
        all
    }

    fn watch_once(&self, fd: BorrowedFd<'_>) -> bool {
        let (rail, once) = (EventData::new_u64(RAIL), EventFlags::IN | EventFlags::ONESHOT);
        match epoll::modify(&self.set, fd, rail, once) {
            Err(rustix::io::Errno::NOENT) => epoll::add(&self.set, fd, rail, once).is_ok(),
            modified => modified.is_ok(),
        }
    }

    /// Sets the timer.
    pub fn set_timer(&self, at: Instant) {
        let nanos = at.as_nanos().max(1); // 0 would stop the timer
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let at = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
        let once = Itimerspec { it_interval: zero, it_value: at };
        // Such a call on a timer of our own fails only for invalid arguments.
        let _ = rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &once);
    }

    /// Ends a sleep.
    pub fn signal(&self) {
        self.wakeup.signal();
    }

    /// Sleeps until an event comes, or for at most `timeout`, and takes the events. May return early, without an event.
    pub fn wait(&self, timeout: Option<Duration>) -> Ready {
        let timeout =
            timeout.map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() });
        let mut events = [const { std::mem::MaybeUninit::uninit() }; 8];
        let mut ready = Ready::default();
        let Ok((events, _)) = epoll::wait(&self.set, &mut events, timeout.as_ref()) else { return ready };
        for event in events {
            match event.data.u64() {
                TIMER => {
                    let _ = rustix::io::read(&self.timer, &mut [0u8; 8]);
                    ready.timer = true;
                }
                WAKEUP => {
                    self.wakeup.clear();
                    ready.wakeup = true;
                }
                _ => ready.rails = true,
            }
        }
        ready
    }
}

impl AsFd for WaitHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}
