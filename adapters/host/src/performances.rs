//! One-sided operations under way in an engine: who waits for them, what memory they use, and how those ended that nobody waits
//! for.

use std::collections::HashMap;

use towline_core::btl::rma::{Failure, Finished, Operation, Registration};
use towline_core::error::Blame;

use crate::engine::Engine;
use crate::memory::Part;

/// The operations of all windows of an engine.
#[derive(Default)]
pub(crate) struct Performances {
    entries: HashMap<Operation, Entry>,
    /// Of a window and a rank of it: operations that nobody waits for.
    accounts: HashMap<(u64, u32), Account>,
    /// How many have ended so far; wraps.
    pub told: u64,
    /// Memory of windows that are gone, to which something was still coming in when they went.
    retired: Vec<(Registration, Part)>,
    windows: u64,
    /// How many were over at once so far; wraps.
    at_once: u32,
}

/// So many operations that are over at once are followed by progress: who waits for a word to change serves others all the same, and
/// sees who dies. A power of two.
const AT_ONCE: u32 = 32;

enum Entry {
    /// A thread waits for it, and keeps its memory until it is over.
    Awaited(Option<Result<u64, Failure>>),
    /// It counts in an account, and its memory is here.
    Alone { window: u64, rank: u32, _data: Box<[u8]> },
}

#[derive(Default)]
struct Account {
    under_way: u64,
    /// The first that went wrong.
    failure: Option<Failure>,
}

impl Performances {
    /// A name for a window.
    pub fn next_window(&mut self) -> u64 {
        self.windows += 1;
        self.windows
    }

    /// One was over at once. Whether progress is due.
    pub fn count_at_once(&mut self) -> bool {
        self.at_once = self.at_once.wrapping_add(1);
        self.at_once.is_multiple_of(AT_ONCE)
    }

    /// Somebody waits for it.
    pub fn wait_for(&mut self, operation: Operation) {
        self.entries.insert(operation, Entry::Awaited(None));
    }

    /// What it ended with, once; who was told keeps its memory no longer.
    pub fn take(&mut self, operation: Operation) -> Option<Result<u64, Failure>> {
        let Some(Entry::Awaited(Some(result))) = self.entries.get(&operation) else { return None };
        let result = *result;
        self.entries.remove(&operation);
        Some(result)
    }

    /// Nobody waits for it.
    pub fn leave_alone(&mut self, operation: Operation, window: u64, rank: u32, data: Box<[u8]>) {
        self.accounts.entry((window, rank)).or_default().under_way += 1;
        self.entries.insert(operation, Entry::Alone { window, rank, _data: data });
    }

    /// The first failure, once, of those to a rank that nobody waited for. `None`: some are under way.
    pub fn settle(&mut self, window: u64, rank: u32) -> Option<Result<(), Failure>> {
        match self.accounts.get(&(window, rank)) {
            Some(account) if account.under_way != 0 => None,
            Some(_) => {
                let failure = self.accounts.remove(&(window, rank)).and_then(|account| account.failure);
                Some(failure.map_or(Ok(()), Err))
            }
            None => Some(Ok(())),
        }
    }

    fn end(&mut self, finished: Finished) {
        self.told = self.told.wrapping_add(1);
        match self.entries.get_mut(&finished.operation) {
            Some(Entry::Awaited(result)) => *result = Some(finished.result),
            Some(Entry::Alone { window, rank, .. }) => {
                let account = self.accounts.entry((*window, *rank)).or_default();
                account.under_way = account.under_way.saturating_sub(1);
                if let Err(failure) = finished.result {
                    account.failure.get_or_insert(failure);
                }
                self.entries.remove(&finished.operation);
            }
            None => {}
        }
    }
}

impl Engine {
    /// Takes note of the operations that are over. Whether there were any.
    pub fn end_performances(&mut self) -> bool {
        let before = self.performances.told;
        while let Some(finished) = self.mtl.pml().next_finished() {
            self.performances.end(finished);
        }
        before != self.performances.told
    }

    /// Ends the registration of a window's memory, which goes as soon as nothing is coming in to it.
    pub fn retire(&mut self, registration: Registration, memory: Part) {
        self.performances.retired.push((registration, memory));
        let Self { mtl, performances, .. } = self;
        performances.retired.retain(|(registration, _)| {
            mtl.pml().deregister(*registration).is_err_and(|why| why.blame() == Blame::Resource)
        });
    }
}
