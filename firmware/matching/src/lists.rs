//! Receives or messages in order, to compare the matcher with.

/// Slots of a list.
pub const SLOTS: u32 = 8;

/// Entries by their slots, each with its place in the order.
pub struct List<T> {
    slots: [Option<(u32, T)>; SLOTS as usize],
    next: u32,
}

impl<T: Copy> List<T> {
    /// An empty list.
    pub const fn new() -> Self {
        Self { slots: [None; SLOTS as usize], next: 0 }
    }

    /// Adds an entry behind all others, in a free slot. `None` if there is none.
    pub fn add(&mut self, entry: T) -> Option<u32> {
        let (slot, free) = (0..).zip(&mut self.slots).find(|(_, slot)| slot.is_none())?;
        *free = Some((self.next, entry));
        self.next = self.next.wrapping_add(1);
        Some(slot)
    }

    /// Takes out the entry of a slot. Returns whether there was one.
    pub fn take(&mut self, slot: u32) -> bool {
        self.slots.get_mut(slot as usize).and_then(Option::take).is_some()
    }

    /// The slot of the first entry that `accepts`.
    pub fn first(&self, accepts: impl Fn(&T) -> bool) -> Option<u32> {
        let used = (0..)
            .zip(&self.slots)
            .filter_map(|(slot, entry)| entry.as_ref().map(|(order, entry)| (slot, order, entry)));
        used.filter(|(_, _, entry)| accepts(entry)).min_by_key(|(_, order, _)| **order).map(|(slot, ..)| slot)
    }
}
