//! The matcher.

use super::hash::Hasher;
use super::key::{ANY, Key, Pattern};
use super::meter::{Counters, Meter};
use super::posted_table::PostedTable;
use super::unexpected_table::UnexpectedTable;
use crate::arena::{Arena, OutOfMemory};

/// In [`Matcher::alone`]: there is nothing at all.
const EMPTY: u64 = u64::MAX;

/// In [`Matcher::alone`]: the tables are in use.
const TABLE: u64 = EMPTY - (1 << 32);

/// A half of [`Matcher::alone`] that is no slot: there are fewer.
const NO_SLOT: u32 = u32::MAX;

/// Slots of posted receives at most: what the halves of [`Matcher::alone`] tell apart.
const MOST_SLOTS: u32 = 1 << 31;

/// Posted receives and unexpected messages of one engine. See the [module](super).
#[derive(Debug)]
pub struct Matcher<'m> {
    /// The posted receive where there is just one and no message waits: it needs no table, they are empty then. In the low
    /// half its slot, in the high half 0; in the high half its slot and in the low half [`NO_SLOT`] where it takes any tag.
    /// So the low half is what a message without further ado may look for. Else [`EMPTY`] or [`TABLE`].
    alone: u64,
    alone_pattern: Pattern,
    posted: PostedTable<'m>,
    unexpected: UnexpectedTable<'m>,
    hasher: Hasher,
    meter: Meter,
}

impl<'m> Matcher<'m> {
    /// A matcher beside a pool of `requests` and a pool of `unexpected` slots. The `seed` must be one that peers do not
    /// know: it is what keeps them from choosing keys that collide.
    ///
    /// # Errors
    /// [`OutOfMemory`] where the arena is smaller than [`cost`](Self::cost).
    pub fn new(arena: &mut Arena<'m>, requests: u32, unexpected: u32, seed: u64) -> Result<Self, OutOfMemory> {
        Ok(Self {
            alone: EMPTY,
            alone_pattern: Pattern { context: 0, source: 0, tag: 0 },
            posted: PostedTable::new(arena, requests.min(MOST_SLOTS))?,
            unexpected: UnexpectedTable::new(arena, unexpected)?,
            hasher: Hasher::new(seed),
            meter: Meter::default(),
        })
    }

    /// Bytes that a matcher takes from an arena at most.
    pub const fn cost(requests: u32, unexpected: u32) -> usize {
        PostedTable::cost(requests).saturating_add(UnexpectedTable::cost(unexpected))
    }

    /// Appends a receive. Ignored if the slot does not exist or is posted already.
    #[inline]
    pub fn post(&mut self, slot: u32, pattern: Pattern) {
        if slot >= self.posted.slots() {
            return;
        }
        if !self.post_alone(slot, pattern) {
            self.use_tables();
            self.posted.post(&self.hasher, slot, pattern);
        }
    }

    /// Posts a receive where there is nothing at all yet, no message either; `false` where there is. The slot is one that
    /// there is.
    #[inline(always)]
    pub(crate) fn post_alone(&mut self, slot: u32, pattern: Pattern) -> bool {
        if self.alone != EMPTY {
            return false;
        }
        let slot = u64::from(slot);
        self.alone = if pattern.tag == ANY { slot << 32 | u64::from(NO_SLOT) } else { slot };
        self.alone_pattern = pattern;
        true
    }

    /// Puts a lone receive among others to be.
    #[inline]
    fn use_tables(&mut self) {
        if self.alone != TABLE {
            self.leave_alone();
        }
    }

    #[cold]
    fn leave_alone(&mut self) {
        let lone = self.alone();
        self.alone = TABLE;
        if let Some(slot) = lone {
            self.posted.post(&self.hasher, slot, self.alone_pattern);
        }
    }

    /// Takes back a receive, wherever it stands, in constant time. False if it is not posted.
    #[inline]
    pub fn unpost(&mut self, slot: u32) -> bool {
        if self.alone() == Some(slot) {
            self.alone = EMPTY;
            return true;
        }
        let found = self.posted.unpost(&self.hasher, slot);
        self.leave_empty_tables();
        found
    }

    /// The receive that was posted first among those that accept `key`; it is no longer posted then.
    #[inline]
    pub fn take_posted(&mut self, key: &Key) -> Option<u32> {
        if let Some(slot) = self.alone() {
            if !self.alone_pattern.accepts(key) {
                self.meter.searched(1, false);
                return None;
            }
            self.alone = EMPTY;
            self.meter.found_at_once();
            return Some(slot);
        }
        self.take_from_table(key)
    }

    /// The slot of the receive that accepts `key`, where it is the only one and has no wildcard; one that there is not where
    /// it is otherwise. It stays posted.
    #[inline(always)]
    pub(crate) const fn lone_slot(&self, key: &Key) -> Option<u32> {
        let pattern = &self.alone_pattern;
        // No message comes from any source, and the low half is no slot where any tag is accepted.
        let same = pattern.context == key.context && pattern.source == key.source && pattern.tag == key.tag;
        if same { Some(self.alone as u32) } else { None }
    }

    /// Takes the receive that [`lone_slot`](Self::lone_slot) told, where there is such a slot.
    #[inline(always)]
    pub(crate) fn take_lone(&mut self) {
        self.alone = EMPTY;
        self.meter.found_at_once();
    }

    #[inline(never)]
    fn take_from_table(&mut self, key: &Key) -> Option<u32> {
        let found = self.posted.take(&self.hasher, key, &self.meter);
        self.leave_empty_tables();
        found
    }

    /// The receive that was posted first among those that accept `key`; it stays posted.
    #[inline]
    pub fn peek_posted(&self, key: &Key) -> Option<u32> {
        match self.alone() {
            Some(slot) => self.alone_pattern.accepts(key).then_some(slot),
            None => self.posted.peek(&self.hasher, key),
        }
    }

    /// What the receive in a slot accepts, `None` if it is not posted. To go through all receives in any order, this
    /// over all slots is quicker than [`next_posted`](Self::next_posted).
    #[inline]
    pub fn posted(&self, slot: u32) -> Option<Pattern> {
        if self.alone() == Some(slot) {
            return Some(self.alone_pattern);
        }
        self.posted.get(slot)
    }

    /// The receive that was posted next after the one in slot `after`, or the first of all. Each call walks the table:
    /// for slow paths. `None` also where `after` is not posted (any more), so get the next before taking one out.
    pub fn next_posted(&self, after: Option<u32>) -> Option<(u32, Pattern)> {
        match self.alone() {
            Some(slot) => after.is_none().then_some((slot, self.alone_pattern)),
            None => self.posted.next(after),
        }
    }

    #[inline]
    fn leave_empty_tables(&mut self) {
        if self.alone == TABLE && self.posted.len() == 0 && self.unexpected.len() == 0 {
            self.alone = EMPTY;
        }
    }

    /// The posted receive where there is just one.
    #[inline]
    const fn alone(&self) -> Option<u32> {
        let (low, high) = (self.alone as u32, (self.alone >> 32) as u32);
        if low != NO_SLOT {
            return Some(low);
        }
        if high < MOST_SLOTS { Some(high) } else { None }
    }

    /// Receives that are posted.
    #[inline]
    pub const fn posted_len(&self) -> u32 {
        self.posted.len().wrapping_add(if self.alone().is_some() { 1 } else { 0 })
    }

    /// Appends a message that no posted receive accepts. Ignored if the slot does not exist or holds one already.
    #[inline]
    pub fn add_unexpected(&mut self, slot: u32, key: Key) {
        self.use_tables();
        self.unexpected.add(&self.hasher, slot, key);
    }

    /// The message that arrived first among those that `pattern` accepts; it stays. Walks the messages in order of
    /// arrival if the pattern has a wildcard.
    #[inline]
    pub fn find_unexpected(&self, pattern: &Pattern) -> Option<u32> {
        self.unexpected.find(&self.hasher, pattern, &self.meter)
    }

    /// Takes out a message, wherever it stands, in constant time. False if the slot holds none.
    #[inline]
    pub fn remove_unexpected(&mut self, slot: u32) -> bool {
        let found = self.unexpected.remove(&self.hasher, slot);
        self.leave_empty_tables();
        found
    }

    /// The key of the unexpected message in a slot, `None` if it holds none.
    #[inline]
    pub fn unexpected(&self, slot: u32) -> Option<Key> {
        self.unexpected.get(slot)
    }

    /// The message that arrived next after the one in slot `after`, or the first of all. `None` also where `after`
    /// holds none (any more), so get the next before taking one out.
    #[inline]
    pub fn next_unexpected(&self, after: Option<u32>) -> Option<(u32, Key)> {
        self.unexpected.next(after)
    }

    /// Unexpected messages that wait for their receive.
    #[inline]
    pub const fn unexpected_len(&self) -> u32 {
        self.unexpected.len()
    }

    /// What the searches of [`take_posted`](Self::take_posted) and [`find_unexpected`](Self::find_unexpected) cost.
    pub fn counters(&self) -> Counters {
        self.meter.read()
    }
}
