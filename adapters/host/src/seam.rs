//! The seam under [`parker`](crate::parker): the system's futex, or a model of it (`--cfg loom`).

#[cfg(not(loom))]
pub(crate) use system::{wait_on, wake_one};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(not(loom))]
mod system {
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    use rustix::event::Timespec;
    use rustix::thread::futex;

    /// Sleeps unless `word` is no longer `is`, until woken or for so long. May come back early.
    pub fn wait_on(word: &AtomicU32, is: u32, timeout: Option<Duration>) {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let _ = futex::wait(word, futex::Flags::PRIVATE, is, timeout.as_ref());
    }

    /// Wakes a thread that sleeps on `word`.
    pub fn wake_one(word: &AtomicU32) {
        let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
    }
}
