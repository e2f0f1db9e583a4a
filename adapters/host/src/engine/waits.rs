//! The waits of threads, for reports. A wait is recorded only when its thread begins to sleep.

use towline_core::mtl::{Comm, Request, Source, Tag};
use towline_core::time::Instant;

/// The event that a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitFor {
    /// The completion of a request.
    Request(Request),
    /// A message that a probe finds.
    Message(Comm, Source, Tag),
    /// The completion of one-sided operations.
    RmaOps,
    /// The waker of a future.
    Task,
    /// A free request, since all are in use.
    FreeRequest,
    /// Anything that comes.
    Anything,
}

/// The wait of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wait {
    pub what: WaitFor,
    /// When it began, to within some microseconds.
    pub since: Instant,
}

/// The waits of the threads that are parked, or that sleep on the wait set.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    entries: Vec<(u64, Wait)>,
    next: u64,
}

impl Waits {
    /// With room for this many waits, so that waiting does not allocate.
    pub fn reserve(&mut self, waits: usize) {
        self.entries.reserve(waits);
    }

    /// Records a wait. Returns its number.
    pub fn begin(&mut self, wait: Wait) -> u64 {
        self.next = self.next.wrapping_add(1);
        self.entries.push((self.next, wait));
        self.next
    }

    /// The wait with this number is over.
    pub fn end(&mut self, number: u64) {
        self.entries.retain(|(other, _)| *other != number);
    }

    pub fn iter(&self) -> impl Iterator<Item = Wait> {
        self.entries.iter().map(|(_, wait)| *wait)
    }
}
