//! The wait handle of a caller that sleeps outside of the library, as in an event loop of its own.
//!
//! The caller looks at its operations, [arms](crate::engine::Engine::arm_caller), and sleeps on the descriptor. Where several threads
//! use the engine, another one may take an event between these steps, or while the caller sleeps. So the caller is told to look again
//! if anything has happened since it last armed, and a thread that makes something happen later ends its sleep.

use std::os::fd::{AsFd, BorrowedFd};

use towline_core::time::{Duration, Instant};

use crate::transports::rails::AnyRail;
use crate::waiting::wait_handle::WaitHandle;

/// How often the caller polls while some rail cannot be watched.
const POLL_INTERVAL: Duration = Duration::from_nanos(200_000);

/// The wait handle, and whether the caller sleeps on it.
#[derive(Default)]
pub(crate) struct CallerWait {
    /// It is made when it is first asked for, and lives as long as the engine.
    handle: Option<Box<WaitHandle>>,
    /// The caller sleeps, or is about to.
    is_armed: bool,
    /// The number of changes when the caller last armed.
    seen: u64,
    /// The time to which the timer is set.
    due: Instant,
}

impl CallerWait {
    /// Makes the wait handle, if there is none yet.
    pub fn make(&mut self) -> std::io::Result<&WaitHandle> {
        let handle = match self.handle.take() {
            Some(handle) => handle,
            None => Box::new(WaitHandle::new()?),
        };
        Ok(self.handle.insert(handle))
    }

    /// The descriptor, once it was made. It stays the same as long as the engine exists.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.handle.as_ref().map(|handle| handle.as_fd())
    }

    /// Whether the caller sleeps, or is about to.
    #[inline]
    pub const fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// The caller arms. Takes the events of the time before. Returns whether anything has changed since it last armed.
    pub fn begin(&mut self, changes: u64) -> std::io::Result<bool> {
        self.is_armed = false;
        self.make()?.wait(Some(std::time::Duration::ZERO));
        Ok(std::mem::replace(&mut self.seen, changes) != changes)
    }

    /// Has the rails and the bell of the DPU end the sleep. Returns by when the sleep has to end: `due`, or earlier if some rail cannot be watched.
    pub fn watch(
        &self,
        (rails, bell): (&mut [AnyRail], Option<BorrowedFd<'_>>),
        now: Instant,
        due: Instant,
    ) -> Instant {
        let all = self.handle.as_ref().is_some_and(|handle| handle.arm(rails, bell));
        if all { due } else { due.min(now + POLL_INTERVAL) }
    }

    /// The rails are armed: the caller may sleep, until `due` at most.
    pub fn sleep(&mut self, due: Instant) {
        self.is_armed = true;
        self.due = due;
        if let Some(handle) = &self.handle {
            handle.set_timer(due);
        }
    }

    /// Whether the sleep ends within `time`.
    pub fn is_short(&self, now: Instant, time: Duration) -> bool {
        self.due.since(now) <= time
    }

    /// A rail has a timer that may be due before the sleep ends.
    pub fn wake_by(&mut self, due: Instant) {
        if due < self.due {
            self.sleep(due);
        }
    }

    /// Whether anything has changed since the caller armed.
    pub const fn has_missed(&self, changes: u64) -> bool {
        self.seen != changes
    }

    /// Ends the sleep of the caller.
    pub fn wake(&mut self) {
        self.is_armed = false;
        if let Some(handle) = &self.handle {
            handle.signal();
        }
    }
}
