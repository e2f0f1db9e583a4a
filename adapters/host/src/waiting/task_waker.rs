//! The waker of a thread in `block_on`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{RawWakerVTable, Wake, Waker};

use super::notify::WakeupFd;
use super::parker::Parker;

/// Tells a thread in `block_on` to poll its future.
#[derive(Debug)]
pub(crate) struct TaskWaker {
    woken: AtomicBool,
    asleep: AtomicBool,
    /// Where the thread may be parked instead of sleeping on the wait set.
    parker: Option<Arc<Parker>>,
    wakeup: Arc<WakeupFd>,
}

/// The common table of all wakers made from a [`TaskWaker`].
static VTABLE: OnceLock<&RawWakerVTable> = OnceLock::new();

/// Whether a waker comes from a [`TaskWaker`]. Such a waker runs no code of users, so it may be woken under a lock.
pub(crate) fn is_task_waker(waker: &Waker) -> bool {
    VTABLE.get().is_some_and(|vtable| std::ptr::eq(*vtable, waker.vtable()))
}

impl TaskWaker {
    /// A waker that counts as woken, and its form for futures. `parker` is that of the thread, if it may be parked.
    pub fn new(parker: Option<Arc<Parker>>, wakeup: Arc<WakeupFd>) -> (Arc<Self>, Waker) {
        let (woken, asleep) = (AtomicBool::new(true), AtomicBool::new(false));
        let own = Arc::new(Self { woken, asleep, parker, wakeup });
        let waker = Waker::from(Arc::clone(&own));
        VTABLE.get_or_init(|| waker.vtable());
        (own, waker)
    }

    /// Whether it was woken since this was last asked.
    pub fn take(&self) -> bool {
        self.woken.swap(false, Ordering::SeqCst)
    }

    /// Whether it was woken.
    pub fn is_woken(&self) -> bool {
        self.woken.load(Ordering::SeqCst)
    }

    /// The thread is about to sleep, so that a wake-up has to notify it. It must look at [`is_woken`](Self::is_woken) afterwards.
    pub fn begin_sleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    /// The thread does not sleep any more.
    pub fn end_sleep(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) {
            // The thread sleeps in one of the two places.
            if let Some(parker) = &self.parker {
                parker.unpark();
            }
            self.wakeup.signal();
        }
    }
}
