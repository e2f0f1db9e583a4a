//! A hash table of queues: one first-in first-out queue for each distinct key.
//!
//! An entry belongs to a slot of a pool and lies at the slot's index. A bucket chains only the heads of its keys, so a flood of
//! equal keys never lengthens the search for another key. Links hold the index plus one, so zeros are an empty table.
//!
//! Each operation is inlined for the common case, a key that is the first in its bucket and has one entry. The other cases are in
//! the functions called `..._far`.

use zerocopy::FromZeros;

use super::hash::Hasher;
use crate::arena::{Arena, OutOfMemory};
use crate::pml::matching::key::Key;
use crate::pml::matching::meter::Meter;

/// One slot's key and links. Two entries fill a cache line. `O` is what orders entries of different keys.
#[derive(FromZeros, Debug)]
#[repr(C, align(32))]
pub(in crate::pml::matching) struct Entry<O> {
    /// See [`Key::origin`].
    origin: u64,
    /// The tag of the key.
    tag: u32,
    /// The next entry of this key.
    next: u32,
    /// In the head of a queue: the head of the bucket's next key.
    chain: u32,
    /// The previous entry of this key; in the head, the last one. Zero in a slot that is not queued.
    prev: u32,
    pub(in crate::pml::matching) order: O,
}

impl<O> Entry<O> {
    #[inline]
    pub(in crate::pml::matching) const fn key(&self) -> Key {
        Key { context: (self.origin >> 32) as u32, source: self.origin as u32, tag: self.tag }
    }

    #[inline]
    const fn has(&self, key: &Key) -> bool {
        self.origin == key.origin() && self.tag == key.tag
    }
}

/// The queues of all keys.
#[derive(Debug)]
pub(in crate::pml::matching) struct Table<'m, O> {
    entries: &'m mut [Entry<O>],
    /// The first head of each bucket: a power of two of them.
    buckets: &'m mut [u32],
}

/// The place of the head of a key's queue.
#[derive(Clone, Copy, Debug)]
pub(in crate::pml::matching) struct Place {
    bucket: usize,
    /// The previous entry in the chain, plus one. 0 if the head is the first of its bucket.
    before: u32,
    /// The head, plus one.
    at: u32,
}

impl Place {
    #[inline]
    pub(in crate::pml::matching) const fn slot(self) -> u32 {
        self.at.wrapping_sub(1)
    }
}

impl<'m, O: FromZeros> Table<'m, O> {
    /// A table without slots, which needs no memory.
    pub(in crate::pml::matching) const fn empty() -> Self {
        Self { entries: &mut [], buckets: &mut [] }
    }

    pub(in crate::pml::matching) fn new(arena: &mut Arena<'m>, slots: u32) -> Result<Self, OutOfMemory> {
        Ok(Self { entries: arena.table(entries(slots))?, buckets: arena.table(buckets(slots))? })
    }

    pub(in crate::pml::matching) const fn cost(slots: u32) -> usize {
        Arena::cost::<Entry<O>>(entries(slots)).saturating_add(Arena::cost::<u32>(buckets(slots)))
    }

    /// The number of slots.
    #[inline]
    pub(in crate::pml::matching) const fn slots(&self) -> u32 {
        self.entries.len() as u32
    }

    /// The entry of a slot that is queued.
    #[inline]
    pub(in crate::pml::matching) fn get(&self, slot: u32) -> Option<&Entry<O>> {
        self.entries.get(slot as usize).filter(|entry| entry.prev != 0)
    }

    #[inline]
    pub(in crate::pml::matching) fn get_mut(&mut self, slot: u32) -> Option<&mut Entry<O>> {
        self.entries.get_mut(slot as usize).filter(|entry| entry.prev != 0)
    }

    /// Queued slots, in the order of their numbers.
    pub(in crate::pml::matching) fn iter(&self) -> impl Iterator<Item = (u32, &Entry<O>)> {
        (0u32..).zip(self.entries.iter()).filter(|(_, entry)| entry.prev != 0)
    }

    /// Appends a slot to the queue of `key`. `false` if the slot does not exist or is queued already.
    #[inline]
    pub(in crate::pml::matching) fn push(&mut self, hasher: &Hasher, slot: u32, key: Key, order: O) -> bool {
        let index = self.bucket(hasher, &key);
        let Some(bucket) = self.buckets.get_mut(index) else { return false };
        let Some(entry) = self.entries.get_mut(slot as usize) else { return false };
        if entry.prev != 0 {
            return false;
        }
        let link = slot.wrapping_add(1);
        *entry = Entry { origin: key.origin(), tag: key.tag, next: 0, chain: 0, prev: link, order };
        if *bucket == 0 {
            *bucket = link;
        } else {
            self.push_far(index, link);
        }
        true
    }

    /// Puts a new entry behind the last one of its key, or else at the end of its bucket: the oldest key of a bucket is found
    /// first, as in a plain list.
    #[inline(never)]
    fn push_far(&mut self, bucket: usize, link: u32) {
        let Some(key) = self.at(link).map(Entry::key) else { return };
        let mut at = self.buckets.get(bucket).copied().unwrap_or(0);
        while let Some(head) = self.at_mut(at) {
            if head.has(&key) {
                let last = core::mem::replace(&mut head.prev, link);
                if let Some(last) = self.at_mut(last) {
                    last.next = link;
                }
                if let Some(entry) = self.at_mut(link) {
                    entry.prev = last;
                }
                return;
            }
            if head.chain == 0 {
                head.chain = link;
                return;
            }
            at = head.chain;
        }
    }

    /// The slot at the head of the queue of `key`.
    #[inline]
    pub(in crate::pml::matching) fn front(&self, hasher: &Hasher, key: &Key, meter: &Meter) -> Option<u32> {
        let bucket = self.bucket(hasher, key);
        let first = *self.buckets.get(bucket)?;
        if self.at(first)?.has(key) {
            meter.found_at_once();
            return Some(first.wrapping_sub(1));
        }
        self.front_far(hasher, key, meter)
    }

    #[inline(never)]
    fn front_far(&self, hasher: &Hasher, key: &Key, meter: &Meter) -> Option<u32> {
        let mut steps = 0;
        let place = self.find(hasher, key, &mut steps);
        meter.searched(steps, place.is_some());
        place.map(Place::slot)
    }

    /// Takes the head off the queue of `key`.
    #[inline]
    pub(in crate::pml::matching) fn take(&mut self, hasher: &Hasher, key: &Key, meter: &Meter) -> Option<u32> {
        let bucket = self.bucket(hasher, key);
        let bucket = self.buckets.get_mut(bucket)?;
        let slot = bucket.wrapping_sub(1);
        let first = self.entries.get_mut(slot as usize)?;
        if first.has(key) && first.next == 0 {
            *bucket = first.chain;
            first.prev = 0;
            meter.found_at_once();
            return Some(slot);
        }
        self.take_far(hasher, key, meter)
    }

    #[inline(never)]
    fn take_far(&mut self, hasher: &Hasher, key: &Key, meter: &Meter) -> Option<u32> {
        let mut steps = 0;
        let place = self.find(hasher, key, &mut steps);
        meter.searched(steps, place.is_some());
        let place = place?;
        self.pop(place);
        Some(place.slot())
    }

    /// Takes a slot out of its queue. `false` if it is not queued.
    #[inline]
    pub(in crate::pml::matching) fn remove(&mut self, hasher: &Hasher, slot: u32) -> bool {
        let Some(entry) = self.entries.get_mut(slot as usize) else { return false };
        let link = slot.wrapping_add(1);
        if entry.prev == link {
            let bucket = self.buckets.len().wrapping_sub(1) & hasher.hash(&entry.key()) as usize;
            if let Some(bucket) = self.buckets.get_mut(bucket).filter(|first| **first == link) {
                *bucket = entry.chain;
                entry.prev = 0;
                return true;
            }
        }
        self.remove_far(hasher, slot)
    }

    #[inline(never)]
    fn remove_far(&mut self, hasher: &Hasher, slot: u32) -> bool {
        let link = slot.wrapping_add(1);
        let Some(entry @ &Entry { next, prev, .. }) = self.get(slot) else { return false };
        let key = entry.key();
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
        // The entry whose `prev` is this one: the next entry, or the head if this is the last.
        let after = if next != 0 { next } else { self.find(hasher, &key, &mut 0).map_or(0, |head| head.at) };
        if let Some(after) = self.at_mut(after) {
            after.prev = prev;
        }
        if let Some(entry) = self.at_mut(link) {
            entry.prev = 0;
        }
        true
    }

    /// The head of the queue of `key`. Adds the entries that it looks at to `steps`.
    pub(in crate::pml::matching) fn find(&self, hasher: &Hasher, key: &Key, steps: &mut u32) -> Option<Place> {
        let bucket = self.bucket(hasher, key);
        let mut place = Place { bucket, before: 0, at: *self.buckets.get(bucket)? };
        while let Some(entry) = self.at(place.at) {
            *steps = steps.wrapping_add(1);
            if entry.has(key) {
                return Some(place);
            }
            place.before = place.at;
            place.at = entry.chain;
        }
        None
    }

    /// Takes the head at `place` off its queue. The next entry of its key replaces it.
    pub(in crate::pml::matching) fn pop(&mut self, place: Place) {
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

    #[inline]
    fn bucket(&self, hasher: &Hasher, key: &Key) -> usize {
        self.buckets.len().wrapping_sub(1) & hasher.hash(key) as usize
    }

    /// The entry whose index plus one is `link`. None for the link 0.
    #[inline]
    fn at(&self, link: u32) -> Option<&Entry<O>> {
        self.entries.get(link.wrapping_sub(1) as usize)
    }

    #[inline]
    fn at_mut(&mut self, link: u32) -> Option<&mut Entry<O>> {
        self.entries.get_mut(link.wrapping_sub(1) as usize)
    }
}

/// Entries of a table: links hold the index plus one, so the last number is left out.
const fn entries(slots: u32) -> usize {
    if slots == u32::MAX { slots as usize - 1 } else { slots as usize }
}

/// The number of buckets of a table, a power of two. Small tables have no more buckets than entries, so a chain has less than two
/// heads on average, and the whole table fits the first-level cache. Large tables have two to four times as many: each key in a
/// shared bucket costs a cache miss and a branch that is mispredicted; four more bytes for each avoid most of that.
pub(in crate::pml::matching) const fn buckets(slots: u32) -> usize {
    match slots.checked_ilog2() {
        Some(power @ ..SPACIOUS) => 1 << power,
        Some(power) => 4usize.saturating_mul(1 << power),
        None => 1,
    }
}

/// A table with two to the power of this many slots, or more, is a large one.
const SPACIOUS: u32 = 6;
