//! What operations in progress refer to, beside memory of the program: layouts, and functions of the program.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::buffer::Prepared;
use crate::error::Outcome;

/// The layouts of operations in progress, by the bits of their requests. Most operations have none.
#[derive(Default)]
pub(crate) struct Kept {
    count: AtomicUsize,
    by_request: Mutex<HashMap<u64, Prepared>>,
}

impl Kept {
    /// Keeps what an operation refers to, until it has ended.
    pub fn add(&self, request: u64, prepared: Prepared) {
        if prepared.refers_to_nothing() {
            return;
        }
        let mut by_request = self.by_request.lock();
        by_request.insert(request, prepared);
        self.count.store(by_request.len(), Ordering::Relaxed);
    }

    /// Whether nothing is kept.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// The operation has ended.
    ///
    /// # Errors
    /// A function of the program has failed in it.
    #[inline]
    pub fn remove(&self, request: u64) -> Outcome<()> {
        if self.is_empty() { Ok(()) } else { self.remove_one(request) }
    }

    #[cold]
    fn remove_one(&self, request: u64) -> Outcome<()> {
        let mut by_request = self.by_request.lock();
        let former = by_request.remove(&request);
        self.count.store(by_request.len(), Ordering::Relaxed);
        drop(by_request);
        former.map_or(Ok(()), |former| former.check_functions())
    }
}
