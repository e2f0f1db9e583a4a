//! A thread's place to sleep: a futex with a token, so that a wake-up that comes before the sleep is not lost.

use std::sync::Arc;

use super::futex::{AtomicU32, Ordering, wait_on, wake_one};

const EMPTY: u32 = 0;
const TOKEN: u32 = 1;

/// One thread's place to sleep.
#[derive(Debug)]
pub(crate) struct Parker {
    word: AtomicU32,
}

impl Parker {
    pub fn new() -> Self {
        Self { word: AtomicU32::new(EMPTY) }
    }

    /// Sleeps until there is a token, and takes it. `None` as `timeout` means forever. A token that an earlier operation left
    /// ends the sleep early.
    pub fn park(&self, timeout: Option<std::time::Duration>) {
        while self.word.swap(EMPTY, Ordering::Acquire) == EMPTY {
            // Returns immediately if there is a token by now.
            wait_on(&self.word, EMPTY, timeout);
            if timeout.is_some() {
                return;
            }
        }
    }

    /// Leaves a token, and wakes the thread that sleeps here.
    pub fn unpark(&self) {
        if self.word.swap(TOKEN, Ordering::Release) == EMPTY {
            wake_one(&self.word);
        }
    }
}

thread_local! {
    static OWN: Arc<Parker> = Arc::new(Parker::new());
}

/// The parker of the calling thread.
pub(crate) fn own() -> Arc<Parker> {
    // A thread that is about to end has lost its own parker, and takes a new one each time.
    OWN.try_with(Arc::clone).unwrap_or_else(|_| Arc::new(Parker::new()))
}
