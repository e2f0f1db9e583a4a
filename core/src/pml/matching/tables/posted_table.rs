//! The table of posted receives, searched by arriving messages.

use super::hash::Hasher;
use super::table::{Place, Table};
use crate::arena::{Arena, OutOfMemory};
use crate::pml::matching::key::{ANY, INTERNAL_TAGS, Key, Pattern};
use crate::pml::matching::meter::Meter;

/// Posted receives. A pattern is stored as a key in which [`ANY`] stands for a wildcard. So up to four keys accept a message, and
/// the oldest of the heads of their queues is the match.
#[derive(Debug)]
pub(in crate::pml::matching) struct PostedTable<'m> {
    table: Table<'m, u64>,
    /// The number of the next receive in posting order.
    sequence: u64,
    /// Posted receives without a wildcard.
    exact: u32,
    /// Posted receives with a wildcard.
    wild: u32,
    /// The number of receives with wildcards, by [`Kind`].
    kinds: [u32; 3],
}

/// The wildcards of a pattern: the index into [`PostedTable::kinds`].
#[derive(Clone, Copy)]
enum Kind {
    Source = 0,
    Tag = 1,
    Both = 2,
}

impl Kind {
    #[inline]
    const fn of(pattern: &Pattern) -> Option<Self> {
        match (pattern.source == ANY, pattern.tag == ANY) {
            (false, false) => None,
            (true, false) => Some(Self::Source),
            (false, true) => Some(Self::Tag),
            (true, true) => Some(Self::Both),
        }
    }
}

impl<'m> PostedTable<'m> {
    pub(in crate::pml::matching) fn new(arena: &mut Arena<'m>, slots: u32) -> Result<Self, OutOfMemory> {
        Ok(Self { table: Table::new(arena, slots)?, sequence: 0, exact: 0, wild: 0, kinds: [0; 3] })
    }

    pub(in crate::pml::matching) const fn cost(slots: u32) -> usize {
        Table::<u64>::cost(slots)
    }

    /// The number of slots.
    #[inline]
    pub(in crate::pml::matching) const fn slots(&self) -> u32 {
        self.table.slots()
    }

    #[inline]
    pub(in crate::pml::matching) const fn len(&self) -> u32 {
        self.exact.wrapping_add(self.wild)
    }

    #[inline]
    pub(in crate::pml::matching) fn get(&self, slot: u32) -> Option<Pattern> {
        self.table.get(slot).map(|entry| pattern(&entry.key()))
    }

    #[inline]
    pub(in crate::pml::matching) fn post(&mut self, hasher: &Hasher, slot: u32, pattern: Pattern) {
        let key = Key { context: pattern.context, source: pattern.source, tag: pattern.tag };
        if !self.table.push(hasher, slot, key, self.sequence) {
            return;
        }
        self.sequence = self.sequence.wrapping_add(1);
        match Kind::of(&pattern) {
            None => self.exact = self.exact.wrapping_add(1),
            Some(kind) => self.count(kind, 1),
        }
    }

    #[inline]
    pub(in crate::pml::matching) fn unpost(&mut self, hasher: &Hasher, slot: u32) -> bool {
        let Some(pattern) = self.get(slot) else { return false };
        self.forget(&pattern);
        self.table.remove(hasher, slot)
    }

    #[inline]
    pub(in crate::pml::matching) fn take(&mut self, hasher: &Hasher, key: &Key, meter: &Meter) -> Option<u32> {
        if self.wild != 0 {
            return self.take_oldest(hasher, key, meter);
        }
        if self.exact == 0 {
            return None;
        }
        let slot = self.table.take(hasher, key, meter)?;
        self.exact = self.exact.wrapping_sub(1);
        Some(slot)
    }

    pub(in crate::pml::matching) fn peek(&self, hasher: &Hasher, key: &Key) -> Option<u32> {
        self.oldest(hasher, key, &mut 0).map(Place::slot)
    }

    /// The receive that was posted next after the one in slot `after`. The cost grows with the table.
    pub(in crate::pml::matching) fn next(&self, after: Option<u32>) -> Option<(u32, Pattern)> {
        let least = match after {
            Some(slot) => self.table.get(slot)?.order.saturating_add(1),
            None => 0,
        };
        // The walk ends after `len` entries, which are all: the rest of the table's memory may never have been touched.
        let posted = self.table.iter().take(self.len() as usize);
        let later = posted.filter(|(_, entry)| entry.order >= least);
        later.min_by_key(|(_, entry)| entry.order).map(|(slot, entry)| (slot, pattern(&entry.key())))
    }

    #[inline(never)]
    fn take_oldest(&mut self, hasher: &Hasher, key: &Key, meter: &Meter) -> Option<u32> {
        let mut steps = 0;
        let place = self.oldest(hasher, key, &mut steps);
        meter.searched(steps, place.is_some());
        let place = place?;
        let pattern = self.get(place.slot())?;
        self.forget(&pattern);
        self.table.pop(place);
        Some(place.slot())
    }

    /// The oldest of the heads of the kinds that have a posted receive.
    fn oldest(&self, hasher: &Hasher, key: &Key, steps: &mut u32) -> Option<Place> {
        let mut best: Option<(u64, Place)> = None;
        let mut look = |key: &Key| {
            let Some(place) = self.table.find(hasher, key, steps) else { return };
            let Some(order) = self.table.get(place.slot()).map(|entry| entry.order) else { return };
            if best.is_none_or(|(least, _)| order < least) {
                best = Some((order, place));
            }
        };
        let [any_source, any_tag, any_both] = self.kinds;
        // The tag `ANY` in a message is an internal tag. It must not find the receives for any tag, which are stored under `ANY`.
        if self.exact != 0 && key.tag != ANY {
            look(key);
        }
        if any_source != 0 && key.tag != ANY {
            look(&Key { source: ANY, ..*key });
        }
        if key.tag < INTERNAL_TAGS {
            if any_tag != 0 {
                look(&Key { tag: ANY, ..*key });
            }
            if any_both != 0 {
                look(&Key { source: ANY, tag: ANY, ..*key });
            }
        }
        best.map(|(_, place)| place)
    }

    /// Counts one receive less, of the pattern's kind.
    #[inline]
    fn forget(&mut self, pattern: &Pattern) {
        match Kind::of(pattern) {
            None => self.exact = self.exact.wrapping_sub(1),
            Some(kind) => self.count(kind, u32::MAX),
        }
    }

    /// Counts one receive with wildcards more, or with `u32::MAX` one less.
    #[cold]
    fn count(&mut self, kind: Kind, change: u32) {
        self.wild = self.wild.wrapping_add(change);
        if let Some(count) = self.kinds.get_mut(kind as usize) {
            *count = count.wrapping_add(change);
        }
    }
}

#[inline]
pub(in crate::pml::matching) const fn pattern(key: &Key) -> Pattern {
    Pattern { context: key.context, source: key.source, tag: key.tag }
}
