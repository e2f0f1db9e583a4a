//! How a waiting thread is notified: by its parker, or by an eventfd where the thread sleeps on a wait set.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use super::parker::Parker;

/// An eventfd in a wait set. It wakes the thread that sleeps on that set.
#[derive(Debug)]
pub(crate) struct WakeupFd(OwnedFd);

impl WakeupFd {
    pub fn new() -> std::io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Wakes the thread that sleeps on the wait set, now or when it next begins to sleep.
    pub fn signal(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Takes back all signals so far.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for WakeupFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// How one waiting thread is notified.
#[derive(Clone, Debug)]
pub(crate) enum Notifier {
    /// The thread is parked.
    Parker(Arc<Parker>),
    /// The thread sleeps on the wait set.
    WaitSet(Arc<WakeupFd>),
}

impl Notifier {
    pub fn notify(&self) {
        match self {
            Self::Parker(parker) => parker.unpark(),
            Self::WaitSet(fd) => fd.signal(),
        }
    }

    /// Whether this notifies the thread with that parker. `None` stands for the only thread that sleeps on the wait set.
    pub fn is_for(&self, parker: Option<&Arc<Parker>>) -> bool {
        match (self, parker) {
            (Self::Parker(own), Some(parker)) => Arc::ptr_eq(own, parker),
            (Self::WaitSet(_), None) => true,
            _ => false,
        }
    }
}
