//! A hash table of queues: one first-in first-out queue for each distinct key.
//!
//! An entry belongs to a slot of a pool and lies at the slot's index. A bucket chains the heads of its keys only, so a
//! flood of equal keys never lengthens the search for another key. Links hold index plus one; zeros are an empty table.

use zerocopy::FromZeros;

use super::Key;
use super::hash::{Hasher, LEAST_BUCKETS};
use crate::arena::{Arena, OutOfMemory};

/// One slot's key and links, two to a cache line. `O` orders entries of different keys.
#[derive(FromZeros, Debug)]
#[repr(C, align(32))]
pub(super) struct Entry<O> {
    pub(super) key: Key,
    /// In the head of a queue: the head of the bucket's next key.
    chain: u32,
    /// The next entry of this key.
    next: u32,
    /// The entry of this key before; in the head, the last one. Zero in a slot that is not queued.
    prev: u32,
    pub(super) order: O,
}

/// The queues of all keys.
#[derive(Debug)]
pub(super) struct Table<'m, O> {
    entries: &'m mut [Entry<O>],
    buckets: &'m mut [u32],
    /// 64 less the logarithm of the number of buckets.
    shift: u32,
}

/// Where the head of a key's queue hangs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    bucket: usize,
    /// The chain's entry before, plus one; 0 where the head is the bucket's first.
    before: u32,
    /// The head, plus one.
    at: u32,
}

impl Place {
    #[inline]
    pub(super) const fn slot(self) -> u32 {
        self.at.wrapping_sub(1)
    }
}

impl<'m, O: FromZeros> Table<'m, O> {
    pub(super) fn new(arena: &mut Arena<'m>, slots: u32) -> Result<Self, OutOfMemory> {
        let buckets = buckets(slots);
        let shift = 64_u32.wrapping_sub(buckets.trailing_zeros());
        Ok(Self { entries: arena.table(entries(slots))?, buckets: arena.table(buckets)?, shift })
    }

    pub(super) const fn cost(slots: u32) -> usize {
        Arena::cost::<Entry<O>>(entries(slots)).saturating_add(Arena::cost::<u32>(buckets(slots)))
    }

    /// The entry whose index plus one is `link`; none for the link 0.
    #[inline]
    fn at(&self, link: u32) -> Option<&Entry<O>> {
        self.entries.get(link.wrapping_sub(1) as usize)
    }

    #[inline]
    fn at_mut(&mut self, link: u32) -> Option<&mut Entry<O>> {
        self.entries.get_mut(link.wrapping_sub(1) as usize)
    }

    /// The entry of a slot that is queued.
    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&Entry<O>> {
        self.entries.get(slot as usize).filter(|entry| entry.prev != 0)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Entry<O>> {
        self.entries.get_mut(slot as usize).filter(|entry| entry.prev != 0)
    }

    /// Queued slots, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Entry<O>)> {
        (0u32..).zip(self.entries.iter()).filter(|(_, entry)| entry.prev != 0)
    }

    /// The head of the queue of `key`. Adds the entries that it looks at to `steps`.
    #[inline]
    pub(super) fn find(&self, hasher: &Hasher, key: &Key, steps: &mut u32) -> Option<Place> {
        let bucket = hasher.bucket(key, self.shift);
        let mut place = Place { bucket, before: 0, at: *self.buckets.get(bucket)? };
        while let Some(entry) = self.at(place.at) {
            *steps = steps.wrapping_add(1);
            if entry.key == *key {
                return Some(place);
            }
            place.before = place.at;
            place.at = entry.chain;
        }
        None
    }

    /// Appends a slot to the queue of `key`. False if the slot does not exist or is queued already.
    #[inline]
    pub(super) fn push(&mut self, hasher: &Hasher, slot: u32, key: Key, order: O) -> bool {
        let link = slot.wrapping_add(1);
        let bucket = hasher.bucket(&key, self.shift);
        let Some(first) = self.buckets.get(bucket).copied() else { return false };
        let Some(entry) = self.entries.get_mut(slot as usize).filter(|entry| entry.prev == 0) else { return false };
        *entry = Entry { key, chain: first, next: 0, prev: link, order };
        if first != 0 && self.append(link, first, &key) {
            return true;
        }
        if let Some(bucket) = self.buckets.get_mut(bucket) {
            *bucket = link;
        }
        true
    }

    /// Puts the new entry at `link` behind the last of its key, if the chain from `first` on has the key.
    #[inline]
    fn append(&mut self, link: u32, first: u32, key: &Key) -> bool {
        let mut at = first;
        while let Some(head) = self.at_mut(at) {
            if head.key == *key {
                let last = core::mem::replace(&mut head.prev, link);
                if let Some(last) = self.at_mut(last) {
                    last.next = link;
                }
                if let Some(entry) = self.at_mut(link) {
                    entry.prev = last;
                }
                return true;
            }
            at = head.chain;
        }
        false
    }

    /// Takes the head at `place` off its queue; the next entry of its key takes its place.
    #[inline]
    pub(super) fn pop(&mut self, place: Place) {
        let Some(head) = self.at_mut(place.at) else { return };
        let (chain, next) = (head.chain, head.next);
        let last = core::mem::replace(&mut head.prev, 0);
        let mut heir = chain;
        if let Some(second) = self.at_mut(next) {
            second.chain = chain;
            second.prev = last;
            heir = next;
        }
        if place.before == 0 {
            if let Some(bucket) = self.buckets.get_mut(place.bucket) {
                *bucket = heir;
            }
        } else if let Some(before) = self.at_mut(place.before) {
            before.chain = heir;
        }
    }

    /// Takes a slot out of its queue, wherever it stands there. False if it is not queued.
    pub(super) fn remove(&mut self, hasher: &Hasher, slot: u32) -> bool {
        let link = slot.wrapping_add(1);
        let Some(entry) = self.get(slot) else { return false };
        let (key, next, prev) = (entry.key, entry.next, entry.prev);
        let is_head = self.at(prev).is_none_or(|before| before.next != link);
        if is_head {
            if let Some(place) = self.find(hasher, &key, &mut 0) {
                self.pop(place);
            }
            return true;
        }
        if let Some(before) = self.at_mut(prev) {
            before.next = next;
        }
        // The entry that names this one as the one before: the next, or the head if this is the last.
        let after = if next != 0 { next } else { self.find(hasher, &key, &mut 0).map_or(0, |head| head.at) };
        if let Some(after) = self.at_mut(after) {
            after.prev = prev;
        }
        if let Some(entry) = self.at_mut(link) {
            entry.prev = 0;
        }
        true
    }
}

/// Entries of a table: links hold the index plus one, so the last number is left out.
const fn entries(slots: u32) -> usize {
    if slots == u32::MAX { slots as usize - 1 } else { slots as usize }
}

/// Buckets of a table: a power of two and at least as many as entries, so that a chain has one head on average.
const fn buckets(slots: u32) -> usize {
    let power = match slots.checked_next_power_of_two() {
        Some(power) => power as usize,
        None => 1 << 31,
    };
    if power < LEAST_BUCKETS { LEAST_BUCKETS } else { power }
}
