//! Posted receives, unexpected messages and held-back sends without an index: each search walks a list. It has the place of `tables`
//! in a build without the feature `indexes`, and takes a tenth of the code.

use zerocopy::FromZeros;

use crate::arena::{Arena, OutOfMemory};
use crate::pml::matching::key::{Key, Pattern};
use crate::pml::matching::meter::Meter;

/// Lists need no hash.
#[derive(Debug)]
pub(super) struct Hasher;

impl Hasher {
    pub(super) const fn new(_seed: u64) -> Self {
        Self
    }
}

/// Entries in the order in which they were added. An entry belongs to a slot of a pool and lies at the slot's index. Links hold the
/// index plus one, so zeros are an empty list.
#[derive(Debug)]
struct List<'m> {
    entries: &'m mut [Entry],
    first: u32,
    last: u32,
    len: u32,
}

#[derive(FromZeros, Clone, Copy, Debug)]
struct Entry {
    /// A pattern is stored as a key in which `ANY` stands for a wildcard.
    key: Key,
    earlier: u32,
    later: u32,
    listed: bool,
}

impl<'m> List<'m> {
    fn new(arena: &mut Arena<'m>, slots: u32) -> Result<Self, OutOfMemory> {
        Ok(Self { entries: arena.table(slots as usize)?, first: 0, last: 0, len: 0 })
    }

    const fn cost(slots: u32) -> usize {
        Arena::cost::<Entry>(slots as usize)
    }

    fn get(&self, slot: u32) -> Option<&Entry> {
        self.entries.get(slot as usize).filter(|entry| entry.listed)
    }

    fn get_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        self.entries.get_mut(slot as usize).filter(|entry| entry.listed)
    }

    /// Adds an entry behind all others. Ignored if the slot does not exist or is listed already.
    fn add(&mut self, slot: u32, key: Key) {
        let (link, last) = (slot.wrapping_add(1), self.last);
        let Some(entry) = self.entries.get_mut(slot as usize).filter(|entry| !entry.listed) else { return };
        *entry = Entry { key, earlier: last, later: 0, listed: true };
        match self.get_mut(last.wrapping_sub(1)) {
            Some(last) => last.later = link,
            None => self.first = link,
        }
        self.last = link;
        self.len = self.len.wrapping_add(1);
    }

    /// Takes an entry out. `false` if the slot is not listed.
    fn remove(&mut self, slot: u32) -> bool {
        let Some(entry) = self.get_mut(slot) else { return false };
        entry.listed = false;
        let Entry { earlier, later, .. } = *entry;
        match self.get_mut(earlier.wrapping_sub(1)) {
            Some(entry) => entry.later = later,
            None => self.first = later,
        }
        match self.get_mut(later.wrapping_sub(1)) {
            Some(entry) => entry.earlier = earlier,
            None => self.last = earlier,
        }
        self.len = self.len.wrapping_sub(1);
        true
    }

    /// The first entry for which `is_it` holds. Adds the entries that it looks at to `steps`.
    fn find(&self, steps: &mut u32, is_it: impl Fn(&Key) -> bool) -> Option<u32> {
        let mut slot = self.first.wrapping_sub(1);
        while let Some(entry) = self.get(slot) {
            *steps = steps.wrapping_add(1);
            if is_it(&entry.key) {
                return Some(slot);
            }
            slot = entry.later.wrapping_sub(1);
        }
        None
    }

    /// The entry after the one in slot `after`, or the first of all.
    fn next(&self, after: Option<u32>) -> Option<(u32, Key)> {
        let link = match after {
            Some(slot) => self.get(slot)?.later,
            None => self.first,
        };
        let slot = link.wrapping_sub(1);
        self.get(slot).map(|entry| (slot, entry.key))
    }
}

/// Posted receives, in posting order.
#[derive(Debug)]
pub(super) struct PostedTable<'m>(List<'m>);

impl<'m> PostedTable<'m> {
    pub(super) fn new(arena: &mut Arena<'m>, slots: u32) -> Result<Self, OutOfMemory> {
        List::new(arena, slots).map(Self)
    }

    pub(super) const fn cost(slots: u32) -> usize {
        List::cost(slots)
    }

    pub(super) const fn slots(&self) -> u32 {
        self.0.entries.len() as u32
    }

    pub(super) const fn len(&self) -> u32 {
        self.0.len
    }

    pub(super) fn get(&self, slot: u32) -> Option<Pattern> {
        self.0.get(slot).map(|entry| pattern(&entry.key))
    }

    pub(super) fn post(&mut self, _: &Hasher, slot: u32, pattern: Pattern) {
        self.0.add(slot, Key { context: pattern.context, source: pattern.source, tag: pattern.tag });
    }

    pub(super) fn unpost(&mut self, _: &Hasher, slot: u32) -> bool {
        self.0.remove(slot)
    }

    pub(super) fn take(&mut self, hasher: &Hasher, key: &Key, meter: &Meter) -> Option<u32> {
        let mut steps = 0;
        let found = self.0.find(&mut steps, |other| pattern(other).accepts(key));
        meter.searched(steps, found.is_some());
        self.unpost(hasher, found?);
        found
    }

    pub(super) fn peek(&self, _: &Hasher, key: &Key) -> Option<u32> {
        self.0.find(&mut 0, |other| pattern(other).accepts(key))
    }

    pub(super) fn next(&self, after: Option<u32>) -> Option<(u32, Pattern)> {
        self.0.next(after).map(|(slot, key)| (slot, pattern(&key)))
    }
}

const fn pattern(key: &Key) -> Pattern {
    Pattern { context: key.context, source: key.source, tag: key.tag }
}

/// Unexpected messages, in the order of their arrival.
#[derive(Debug)]
pub(super) struct UnexpectedTable<'m>(List<'m>);

impl<'m> UnexpectedTable<'m> {
    pub(super) fn new(arena: &mut Arena<'m>, slots: u32) -> Result<Self, OutOfMemory> {
        List::new(arena, slots).map(Self)
    }

    pub(super) const fn cost(slots: u32) -> usize {
        List::cost(slots)
    }

    pub(super) const fn len(&self) -> u32 {
        self.0.len
    }

    pub(super) fn get(&self, slot: u32) -> Option<Key> {
        self.0.get(slot).map(|entry| entry.key)
    }

    pub(super) fn add(&mut self, _: &Hasher, slot: u32, key: Key) {
        self.0.add(slot, key);
    }

    pub(super) fn find(&self, _: &Hasher, pattern: &Pattern, meter: &Meter) -> Option<u32> {
        let mut steps = 0;
        let found = self.0.find(&mut steps, |key| pattern.accepts(key));
        if steps != 0 {
            meter.searched(steps, found.is_some());
        }
        found
    }

    pub(super) fn remove(&mut self, _: &Hasher, slot: u32) -> bool {
        self.0.remove(slot)
    }

    pub(super) fn next(&self, after: Option<u32>) -> Option<(u32, Key)> {
        self.0.next(after)
    }
}

/// Held-back sends have no table: the engine walks its list of them.
#[derive(Debug)]
pub(in crate::pml) struct HeldTable<'m>(core::marker::PhantomData<&'m mut [Entry]>);

impl<'m> HeldTable<'m> {
    #[expect(clippy::unnecessary_wraps, reason = "as the table with an index")]
    pub(in crate::pml) const fn new(_: &mut Arena<'m>, _requests: u32, _seed: u64) -> Result<Self, OutOfMemory> {
        Ok(Self(core::marker::PhantomData))
    }

    pub(in crate::pml) const fn cost(_requests: u32) -> usize {
        0
    }

    pub(in crate::pml) const fn is_used(&self) -> bool {
        false
    }

    pub(in crate::pml) const fn add(&mut self, _slot: u32, _key: Key) {}

    pub(in crate::pml) const fn remove(&mut self, _slot: u32) {}

    pub(in crate::pml) const fn find(&self, _: &Pattern, _steps: &mut u32) -> Option<u32> {
        None
    }
}
