//! The table of unexpected messages, searched by new receives.

use zerocopy::FromZeros;

use super::hash::Hasher;
use super::table::{Entry, Table};
use crate::arena::{Arena, OutOfMemory};
use crate::pml::matching::key::{ANY, Key, Pattern};
use crate::pml::matching::meter::Meter;

/// Unexpected messages. Receives without wildcards search them by key; others walk one list in order of arrival.
#[derive(Debug)]
pub(in crate::pml::matching) struct UnexpectedTable<'m> {
    table: Table<'m, Arrival>,
    /// The message that arrived first, index plus one.
    first: u32,
    /// The message that arrived last, index plus one.
    last: u32,
    len: u32,
}

/// Links of the list by arrival, index plus one.
#[derive(FromZeros, Debug)]
#[repr(C)]
pub(in crate::pml::matching) struct Arrival {
    later: u32,
    earlier: u32,
}

impl<'m> UnexpectedTable<'m> {
    pub(in crate::pml::matching) fn new(arena: &mut Arena<'m>, slots: u32) -> Result<Self, OutOfMemory> {
        Ok(Self { table: Table::new(arena, slots)?, first: 0, last: 0, len: 0 })
    }

    pub(in crate::pml::matching) const fn cost(slots: u32) -> usize {
        Table::<Arrival>::cost(slots)
    }

    #[inline]
    pub(in crate::pml::matching) const fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(in crate::pml::matching) fn get(&self, slot: u32) -> Option<Key> {
        self.table.get(slot).map(Entry::key)
    }

    #[inline]
    pub(in crate::pml::matching) fn add(&mut self, hasher: &Hasher, slot: u32, key: Key) {
        let (link, last) = (slot.wrapping_add(1), self.last);
        if !self.table.push(hasher, slot, key, Arrival { later: 0, earlier: last }) {
            return;
        }
        match self.table.get_mut(last.wrapping_sub(1)) {
            Some(last) => last.order.later = link,
            None => self.first = link,
        }
        self.last = link;
        self.len = self.len.wrapping_add(1);
    }

    #[inline]
    pub(in crate::pml::matching) fn find(&self, hasher: &Hasher, pattern: &Pattern, meter: &Meter) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        if pattern.source == ANY || pattern.tag == ANY {
            return self.find_in_order(pattern, meter);
        }
        let key = Key { context: pattern.context, source: pattern.source, tag: pattern.tag };
        self.table.front(hasher, &key, meter)
    }

    #[inline(never)]
    fn find_in_order(&self, pattern: &Pattern, meter: &Meter) -> Option<u32> {
        let (mut slot, mut steps) = (self.first.wrapping_sub(1), 0u32);
        while let Some(entry) = self.table.get(slot) {
            steps = steps.wrapping_add(1);
            if pattern.accepts(&entry.key()) {
                meter.searched(steps, true);
                return Some(slot);
            }
            slot = entry.order.later.wrapping_sub(1);
        }
        meter.searched(steps, false);
        None
    }

    #[inline]
    pub(in crate::pml::matching) fn remove(&mut self, hasher: &Hasher, slot: u32) -> bool {
        let Some(entry) = self.table.get(slot) else { return false };
        let Arrival { later, earlier } = entry.order;
        match self.table.get_mut(earlier.wrapping_sub(1)) {
            Some(entry) => entry.order.later = later,
            None => self.first = later,
        }
        match self.table.get_mut(later.wrapping_sub(1)) {
            Some(entry) => entry.order.earlier = earlier,
            None => self.last = earlier,
        }
        self.len = self.len.wrapping_sub(1);
        self.table.remove(hasher, slot)
    }

    pub(in crate::pml::matching) fn next(&self, after: Option<u32>) -> Option<(u32, Key)> {
        let link = match after {
            Some(slot) => self.table.get(slot)?.order.later,
            None => self.first,
        };
        let slot = link.wrapping_sub(1);
        self.get(slot).map(|key| (slot, key))
    }
}
