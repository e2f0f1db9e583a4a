//! Where one thread waits for another: a futex with a token, so that a wake-up before the sleep is not lost.

use std::sync::Arc;
use std::task::Wake;

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

    /// Sleeps until there is a token, and takes it; `None` is for ever. A token of an earlier call ends it early.
    pub fn park(&self, timeout: Option<std::time::Duration>) {
        while self.word.swap(EMPTY, Ordering::Acquire) == EMPTY {
            // Comes back at once if there is a token by now.
            wait_on(&self.word, EMPTY, timeout);
            if timeout.is_some() {
                return;
            }
        }
    }

    /// Leaves a token, and wakes whoever sleeps.
    pub fn unpark(&self) {
        if self.word.swap(TOKEN, Ordering::Release) == EMPTY {
            wake_one(&self.word);
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.unpark();
    }
}

thread_local! {
    static OWN: Arc<Parker> = Arc::new(Parker::new());
}

/// The calling thread's.
pub(crate) fn own() -> Arc<Parker> {
    // A thread that is about to end has lost its own, and takes a new one each time.
    OWN.try_with(Arc::clone).unwrap_or_else(|_| Arc::new(Parker::new()))
}
