//! One-sided operations under way in an engine: who waits for them, what memory they use, and how those ended that nobody waits
//! for.

use std::collections::HashMap;

use towline_core::error::Blame;
use towline_core::rma::{Failure, Finished, Operation, Registration};

use crate::engine::Engine;
use crate::transports::memory::Part;

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

    /// A window is gone: nobody asks for what its operations end with.
    fn forget(&mut self, window: u64) {
        self.accounts.retain(|(other, _), _| *other != window);
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
        if let Some(Entry::Awaited(result)) = self.entries.get_mut(&finished.operation) {
            *result = Some(finished.result);
        } else if let Some(Entry::Alone { window, rank, .. }) = self.entries.remove(&finished.operation)
            && let Some(account) = self.accounts.get_mut(&(window, rank))
        {
            account.under_way = account.under_way.saturating_sub(1);
            if let Err(failure) = finished.result {
                account.failure.get_or_insert(failure);
            }
            if account.under_way == 0 && account.failure.is_none() {
                self.accounts.remove(&(window, rank)); // there is nothing to tell
            }
        }
    }
}

impl Engine {
    /// Takes note of the operations that are over.
    pub fn end_performances(&mut self) {
        while let Some(finished) = self.mtl.pml().next_finished() {
            self.performances.end(finished);
        }
    }

    /// A window is gone: ends the registration of its memory, which goes as soon as nothing is coming in to it.
    pub fn retire(&mut self, window: u64, registration: Registration, memory: Part) {
        self.performances.forget(window);
        self.performances.retired.push((registration, memory));
        self.give_up_retired();
    }

    /// Looks whether what was coming in to the memory of windows that are gone is there.
    #[inline]
    pub fn give_up_retired(&mut self) {
        if !self.performances.retired.is_empty() {
            self.try_to_give_up();
        }
    }

    #[cold]
    fn try_to_give_up(&mut self) {
        let Self { mtl, performances, .. } = self;
        performances.retired.retain(|(registration, _)| {
            mtl.pml().deregister(*registration).is_err_and(|why| why.blame() == Blame::Resource)
        });
    }
}

#[cfg(test)]
mod tests {
    use towline_core::rma::Access;

    use crate::threads::levels::Lock;
    use crate::{Builder, Window, World};

    fn kept(world: &World) -> [usize; 2] {
        let engine = world.place.context.engine.hold();
        [engine.performances.entries.len(), engine.performances.accounts.len()]
    }

    /// Puts of which some fail, and all are over or under way when their window is dropped.
    #[test]
    fn nothing_is_kept_of_windows_that_are_gone() {
        let world = Builder::new().transports("loopback").build().unwrap();
        for access in [Access::ANY, Access::REMOTE_READ] {
            for (makes_progress, flushes) in [(false, false), (true, false), (true, true)] {
                let window: Window = world.window_with(64, access).unwrap();
                window.put(0, 0, &[1u64; 8]).unwrap();
                if makes_progress {
                    while world.progress() != 0 {}
                }
                assert_eq!(!flushes || window.flush(0).is_ok(), !flushes || access == Access::ANY);
                drop(window);
                while world.progress() != 0 {}
                world.place.context.engine.hold().end_performances();
                assert_eq!(kept(&world), [0, 0], "{access:?}, {makes_progress}, {flushes}");
            }
        }
    }
}
