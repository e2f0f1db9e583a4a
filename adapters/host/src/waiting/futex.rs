//! The futex under a [`Parker`](super::parker::Parker): the system's, or a model of it (`--cfg loom`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(loom)]
pub(crate) use model::{wait_on, wake_one};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
pub(crate) use system::{wait_on, wake_one};

#[cfg(not(loom))]
mod system {
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    use rustix::event::Timespec;
    use rustix::thread::futex;

    /// Sleeps while `word` is `expected`, until woken, for at most `timeout`. May return early.
    pub fn wait_on(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let _ = futex::wait(word, futex::Flags::PRIVATE, expected, timeout.as_ref());
    }

    /// Wakes a thread that sleeps on `word`.
    pub fn wake_one(word: &AtomicU32) {
        let _ = futex::wake(word, futex::Flags::PRIVATE, 1);
    }
}

#[cfg(loom)]
mod model {
    use std::time::Duration;

    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::sync::{Condvar, Mutex};

    loom::lazy_static! {
        /// The kernel's queue of sleepers. A waking thread sees the check of the word and the start of the sleep as one step.
        static ref QUEUE: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    pub fn wait_on(word: &AtomicU32, expected: u32, _: Option<Duration>) {
        let queue = QUEUE.0.lock().unwrap();
        if word.load(Ordering::Relaxed) == expected {
            drop(QUEUE.1.wait(queue).unwrap());
        }
    }

    pub fn wake_one(_: &AtomicU32) {
        let _queue = QUEUE.0.lock().unwrap();
        QUEUE.1.notify_all(); // wakes sleepers on other words, too: a futex may return early
    }
}
