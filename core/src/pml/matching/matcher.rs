//! The matcher: posted receives and unexpected messages.

use super::key::{ANY, Key, Pattern};
use super::meter::{Counters, Meter};
use super::tables::{Hasher, PostedTable, UnexpectedTable};
use crate::arena::{Arena, OutOfMemory};

/// In [`Matcher::only`]: there is neither a receive nor a message.
const EMPTY: u64 = u64::MAX;

/// In [`Matcher::only`]: the tables are in use.
const TABLE: u64 = EMPTY - (1 << 32);

/// In the low half of [`Matcher::only`]: not a slot, since there are fewer slots.
const NO_SLOT: u32 = u32::MAX;

/// Most slots of posted receives: in the high half of [`Matcher::only`], [`EMPTY`] and [`TABLE`] have larger values.
const MOST_SLOTS: u32 = 1 << 31;

/// Posted receives and unexpected messages of one engine. See the [module](crate::pml::matching).
#[derive(Debug)]
pub struct Matcher<'m> {
    /// The posted receive, if it is the only one and no message waits. Both tables are empty then.
    ///
    /// - A receive for one tag: its slot in the low half, 0 in the high half.
    /// - A receive for any tag: [`NO_SLOT`] in the low half, its slot in the high half.
    /// - Otherwise [`EMPTY`] or [`TABLE`].
    ///
    /// So the fast path of a message looks at the low half alone.
    only: u64,
    only_pattern: Pattern,
    posted: PostedTable<'m>,
    unexpected: UnexpectedTable<'m>,
    hasher: Hasher,
    meter: Meter,
}

impl<'m> Matcher<'m> {
    /// Makes a matcher for a pool of `requests` slots and a pool of `unexpected` slots. Peers must not know the `seed`: otherwise
    /// they could choose keys that collide.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the arena has less than [`cost`](Self::cost) left.
    pub fn new(arena: &mut Arena<'m>, requests: u32, unexpected: u32, seed: u64) -> Result<Self, OutOfMemory> {
        Ok(Self {
            only: EMPTY,
            only_pattern: Pattern { context: 0, source: 0, tag: 0 },
            posted: PostedTable::new(arena, requests.min(MOST_SLOTS))?,
            unexpected: UnexpectedTable::new(arena, unexpected)?,
            hasher: Hasher::new(seed),
            meter: Meter::default(),
        })
    }

    /// Most bytes that a matcher takes from an arena.
    pub const fn cost(requests: u32, unexpected: u32) -> usize {
        PostedTable::cost(requests).saturating_add(UnexpectedTable::cost(unexpected))
    }

    /// Posts a receive. Ignored if the slot does not exist or is posted already.
    #[inline]
    pub fn post(&mut self, slot: u32, pattern: Pattern) {
        if slot >= self.posted.slots() {
            return;
        }
        if !self.post_only(slot, pattern) {
            self.use_tables();
            self.posted.post(&self.hasher, slot, pattern);
        }
    }

    /// Posts a receive if there is neither a receive nor a message yet. Otherwise returns `false`. The slot must exist.
    #[inline(always)]
    pub(crate) fn post_only(&mut self, slot: u32, pattern: Pattern) -> bool {
        if self.only != EMPTY {
            return false;
        }
        let slot = u64::from(slot);
        self.only = if pattern.tag == ANY { slot << 32 | u64::from(NO_SLOT) } else { slot };
        self.only_pattern = pattern;
        true
    }

    /// Moves the only receive to the table, before another entry is added.
    #[inline]
    fn use_tables(&mut self) {
        if self.only != TABLE {
            self.move_to_table();
        }
    }

    #[cold]
    fn move_to_table(&mut self) {
        let lone = self.only();
        self.only = TABLE;
        if let Some(slot) = lone {
            self.posted.post(&self.hasher, slot, self.only_pattern);
        }
    }

    /// Takes back a receive, in constant time. `false` if it is not posted.
    #[inline]
    pub fn unpost(&mut self, slot: u32) -> bool {
        if self.only() == Some(slot) {
            self.only = EMPTY;
            return true;
        }
        let found = self.posted.unpost(&self.hasher, slot);
        self.leave_empty_tables();
        found
    }

    /// Takes the receive that was posted first among those that accept `key`.
    #[inline]
    pub fn take_posted(&mut self, key: &Key) -> Option<u32> {
        if let Some(slot) = self.only() {
            if !self.only_pattern.accepts(key) {
                self.meter.searched(1, false);
                return None;
            }
            self.only = EMPTY;
            self.meter.found_at_once();
            return Some(slot);
        }
        self.take_from_table(key)
    }

    /// The slot of the receive that accepts `key`, if it is the only one and has no wildcard. Otherwise `None`, or a slot that
    /// does not exist. The receive stays posted.
    #[inline(always)]
    pub(crate) const fn only_match(&self, key: &Key) -> Option<u32> {
        let pattern = &self.only_pattern;
        // No message comes from the source `ANY`, and the low half is no slot if any tag is accepted.
        let same = pattern.context == key.context && pattern.source == key.source && pattern.tag == key.tag;
        if same { Some(self.only as u32) } else { None }
    }

    /// Takes the receive that [`only_match`](Self::only_match) returned, if its slot exists.
    #[inline(always)]
    pub(crate) fn take_only(&mut self) {
        self.only = EMPTY;
        self.meter.found_at_once();
    }

    #[inline(never)]
    fn take_from_table(&mut self, key: &Key) -> Option<u32> {
        let found = self.posted.take(&self.hasher, key, &self.meter);
        self.leave_empty_tables();
        found
    }

    /// The receive that was posted first among those that accept `key`. It stays posted.
    #[inline]
    pub fn peek_posted(&self, key: &Key) -> Option<u32> {
        match self.only() {
            Some(slot) => self.only_pattern.accepts(key).then_some(slot),
            None => self.posted.peek(&self.hasher, key),
        }
    }

    /// The pattern of the receive in a slot. `None` if it is not posted. To visit all receives in any order, call this for all
    /// slots: it is faster than [`next_posted`](Self::next_posted).
    #[inline]
    pub fn posted(&self, slot: u32) -> Option<Pattern> {
        if self.only() == Some(slot) {
            return Some(self.only_pattern);
        }
        self.posted.get(slot)
    }

    /// The receive that was posted next after the one in slot `after`, or the first of all. Each call walks the table: it is for
    /// slow paths. `None` also if `after` is not posted any more, so get the next one before you take one out.
    pub fn next_posted(&self, after: Option<u32>) -> Option<(u32, Pattern)> {
        match self.only() {
            Some(slot) => after.is_none().then_some((slot, self.only_pattern)),
            None => self.posted.next(after),
        }
    }

    /// Notes in `only` that both tables are empty, if they are.
    #[inline]
    fn leave_empty_tables(&mut self) {
        if self.only == TABLE && self.posted.len() == 0 && self.unexpected.len() == 0 {
            self.only = EMPTY;
        }
    }

    /// The posted receive, if it is the only one.
    #[inline]
    const fn only(&self) -> Option<u32> {
        let (low, high) = (self.only as u32, (self.only >> 32) as u32);
        if low != NO_SLOT {
            return Some(low);
        }
        if high < MOST_SLOTS { Some(high) } else { None }
    }

    /// The number of posted receives.
    #[inline]
    pub const fn posted_len(&self) -> u32 {
        self.posted.len().wrapping_add(if self.only().is_some() { 1 } else { 0 })
    }

    /// Adds a message that no posted receive accepts. Ignored if the slot does not exist or holds a message already.
    #[inline]
    pub fn add_unexpected(&mut self, slot: u32, key: Key) {
        self.use_tables();
        self.unexpected.add(&self.hasher, slot, key);
    }

    /// The message that arrived first among those that `pattern` accepts. It stays. A pattern with a wildcard makes this walk the
    /// messages in order of arrival.
    #[inline]
    pub fn find_unexpected(&self, pattern: &Pattern) -> Option<u32> {
        self.unexpected.find(&self.hasher, pattern, &self.meter)
    }

    /// Takes out a message, in constant time. `false` if the slot holds none.
    #[inline]
    pub fn remove_unexpected(&mut self, slot: u32) -> bool {
        let found = self.unexpected.remove(&self.hasher, slot);
        self.leave_empty_tables();
        found
    }

    /// The key of the unexpected message in a slot. `None` if it holds none.
    #[inline]
    pub fn unexpected(&self, slot: u32) -> Option<Key> {
        self.unexpected.get(slot)
    }

    /// The message that arrived next after the one in slot `after`, or the first of all. `None` also if `after` holds none any
    /// more, so get the next one before you take one out.
    #[inline]
    pub fn next_unexpected(&self, after: Option<u32>) -> Option<(u32, Key)> {
        self.unexpected.next(after)
    }

    /// The number of unexpected messages that wait for their receive.
    #[inline]
    pub const fn unexpected_len(&self) -> u32 {
        self.unexpected.len()
    }

    /// The cost of the searches of [`take_posted`](Self::take_posted) and [`find_unexpected`](Self::find_unexpected) so far.
    pub fn counters(&self) -> Counters {
        self.meter.read()
    }
}
