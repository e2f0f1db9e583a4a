//! The table of held-back sends, searched by the asks of peers.

use super::hash::Hasher;
use super::table::Table;
use crate::arena::{Arena, OutOfMemory};
use crate::pml::matching::key::{ANY, INTERNAL_TAGS, Key, Pattern};

/// Held-back sends, by the slot of their request. The source of a key is the receiver here.
///
/// A send is in two queues. One has the sends with its tag. The other one has all sends of its context that an ask for any tag
/// accepts; it is stored under the tag [`ANY`]. So an ask is answered in constant time, regardless of how many other messages are
/// held back.
#[derive(Debug)]
pub(in crate::pml) struct HeldTable<'m> {
    /// The entries of slot s are 2 s, in the queue of its tag, and 2 s + 1, in the queue of all tags.
    table: Table<'m, ()>,
    hasher: Hasher,
}

/// An engine with fewer requests has no table: it is as quick to walk its list, and small devices keep the memory.
pub(in crate::pml) const LEAST_REQUESTS: u32 = 64;

impl<'m> HeldTable<'m> {
    /// A table for a pool of `requests` slots. It has no entries if these are fewer than [`LEAST_REQUESTS`].
    pub(in crate::pml) fn new(arena: &mut Arena<'m>, requests: u32, seed: u64) -> Result<Self, OutOfMemory> {
        let table =
            if requests < LEAST_REQUESTS { Table::empty() } else { Table::new(arena, requests.saturating_mul(2))? };
        Ok(Self { table, hasher: Hasher::new(seed) })
    }

    pub(in crate::pml) const fn cost(requests: u32) -> usize {
        if requests < LEAST_REQUESTS { 0 } else { Table::<()>::cost(requests.saturating_mul(2)) }
    }

    /// Whether the table has entries.
    pub(in crate::pml) const fn is_used(&self) -> bool {
        self.table.slots() != 0
    }

    /// Adds a send behind all others. Ignored if the slot does not exist or is in the table already, and for the tag [`ANY`],
    /// which no ask accepts.
    pub(in crate::pml) fn add(&mut self, slot: u32, key: Key) {
        let entry = slot.saturating_mul(2);
        if key.tag == ANY || !self.table.push(&self.hasher, entry, key, ()) {
            return;
        }
        if key.tag < INTERNAL_TAGS {
            self.table.push(&self.hasher, entry.saturating_add(1), Key { tag: ANY, ..key }, ());
        }
    }

    /// Takes a send out, in constant time. Ignored if the slot is not in the table.
    pub(in crate::pml) fn remove(&mut self, slot: u32) {
        let entry = slot.saturating_mul(2);
        self.table.remove(&self.hasher, entry);
        self.table.remove(&self.hasher, entry.saturating_add(1));
    }

    /// The send that was added first among those that `pattern` accepts. It stays. Adds the entries that were looked at to
    /// `steps`.
    pub(in crate::pml) fn find(&self, pattern: &Pattern, steps: &mut u32) -> Option<u32> {
        let key = Key { context: pattern.context, source: pattern.source, tag: pattern.tag };
        self.table.find(&self.hasher, &key, steps).map(|place| place.slot() / 2)
    }
}
