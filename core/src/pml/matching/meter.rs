//! The cost of searches.

use core::cell::Cell;

/// The cost of all searches so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Counters {
    /// Searches that found their counterpart.
    pub matches: u64,
    /// Entries that all searches looked at, those without result included.
    pub steps: u64,
    /// The most entries that one search looked at.
    pub most_steps: u32,
}

/// Counts searches. It has interior mutability, since searches for probes borrow the matcher shared.
#[derive(Debug, Default)]
pub(super) struct Meter {
    matches: Cell<u64>,
    /// Steps of all searches, without the first step of each match.
    further: Cell<u64>,
    most: Cell<u32>,
}

impl Meter {
    /// Counts a search that found its counterpart in one step: one addition, on the path of every message.
    #[inline]
    pub(super) fn found_at_once(&self) {
        if !cfg!(feature = "counters") {
            return;
        }
        self.matches.set(self.matches.get().wrapping_add(1));
    }

    /// Counts a search that looked at `steps` entries.
    pub(super) fn searched(&self, steps: u32, found: bool) {
        if !cfg!(feature = "counters") {
            return;
        }
        let found = found as u32;
        self.matches.set(self.matches.get().wrapping_add(found.into()));
        self.further.set(self.further.get().wrapping_add(steps.saturating_sub(found).into()));
        self.most.set(self.most.get().max(steps));
    }

    pub(super) fn read(&self) -> Counters {
        let matches = self.matches.get();
        Counters {
            matches,
            steps: matches.wrapping_add(self.further.get()),
            most_steps: self.most.get().max((matches != 0).into()),
        }
    }
}
