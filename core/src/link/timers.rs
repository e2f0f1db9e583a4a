//! Deadlines, at most one for each peer: a heap that knows the place of each entry.

use zerocopy::FromZeros;

use crate::arena::{Arena, OutOfMemory};

/// A heap with the earliest deadline first. A deadline can only be brought forward: a caller that wants a later one sets it
/// again when the earlier one is due.
#[derive(Debug)]
pub(super) struct Timers<'m> {
    heap: &'m mut [Timer],
    /// The place of each index in the heap, plus one; 0: it is not there.
    place: &'m mut [u32],
    len: usize,
}

#[derive(FromZeros, Clone, Copy, Debug)]
struct Timer {
    due: u64,
    index: u32,
}

impl<'m> Timers<'m> {
    pub fn new(arena: &mut Arena<'m>, count: usize) -> Result<Self, OutOfMemory> {
        Ok(Self { heap: arena.table(count)?, place: arena.table(count)?, len: 0 })
    }

    pub const fn cost(count: usize) -> usize {
        Arena::cost::<Timer>(count).saturating_add(Arena::cost::<u32>(count))
    }

    /// The earliest deadline.
    pub fn first(&self) -> Option<u64> {
        self.next().map(|(_, due)| due)
    }

    /// The earliest deadline: index and time.
    pub fn next(&self) -> Option<(u32, u64)> {
        self.heap.first().filter(|_| self.len > 0).map(|timer| (timer.index, timer.due))
    }

    /// Sets the deadline of an index, unless it has an earlier one.
    pub fn set(&mut self, index: u32, due: u64) {
        let at = match self.place.get(index as usize) {
            None => return,
            Some(0) => {
                self.len = self.len.wrapping_add(1);
                self.len.wrapping_sub(1)
            }
            Some(place) => {
                let at = (*place as usize).wrapping_sub(1);
                if self.heap.get(at).is_none_or(|timer| timer.due <= due) {
                    return;
                }
                at
            }
        };
        self.put(at, Timer { due, index });
        self.rise(at);
    }

    /// Removes the earliest deadline if it is due.
    pub fn pop(&mut self, now: u64) -> Option<u32> {
        let first = *self.heap.first().filter(|timer| self.len > 0 && timer.due <= now)?;
        self.remove(first.index);
        Some(first.index)
    }

    /// Removes the deadline of an index.
    pub fn remove(&mut self, index: u32) {
        let Some(place) = self.place.get_mut(index as usize) else { return };
        if *place == 0 {
            return;
        }
        let at = (*place as usize).wrapping_sub(1);
        *place = 0;
        self.len = self.len.wrapping_sub(1);
        if at == self.len {
            return;
        }
        if let Some(last) = self.heap.get(self.len).copied() {
            self.put(at, last);
            self.rise(at);
            self.sink(at);
        }
    }

    fn put(&mut self, at: usize, timer: Timer) {
        if let (Some(entry), Some(place)) = (self.heap.get_mut(at), self.place.get_mut(timer.index as usize)) {
            *entry = timer;
            *place = (at as u32).wrapping_add(1);
        }
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 {
            let above = (at - 1) / 2;
            let (Some(&low), Some(&high)) = (self.heap.get(at), self.heap.get(above)) else { return };
            if high.due <= low.due {
                return;
            }
            self.put(at, high);
            self.put(above, low);
            at = above;
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let left = at.wrapping_mul(2).wrapping_add(1);
            let due = |at: usize| self.heap.get(at).filter(|_| at < self.len).map_or(u64::MAX, |timer| timer.due);
            let below = if due(left.wrapping_add(1)) < due(left) { left.wrapping_add(1) } else { left };
            if below >= self.len || due(at) <= due(below) {
                return;
            }
            let (Some(&high), Some(&low)) = (self.heap.get(at), self.heap.get(below)) else { return };
            self.put(below, high);
            self.put(at, low);
            at = below;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn deadlines_come_in_order(ops in prop::collection::vec((0u8..3, 0u32..9, 0u64..50), 0..200)) {
            let mut block = [0u8; 512];
            let mut timers = Timers::new(&mut Arena::new(&mut block), 9).unwrap();
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            for (op, index, due) in ops {
                match op {
                    0 => {
                        timers.set(index, due);
                        let entry = model.entry(index).or_insert(due);
                        *entry = due.min(*entry);
                    }
                    1 => {
                        timers.remove(index);
                        model.remove(&index);
                    }
                    _ => {
                        let popped = timers.pop(due);
                        let least = model.values().min().copied().filter(|least| *least <= due);
                        prop_assert_eq!(popped.and_then(|index| model.remove(&index)), least);
                    }
                }
                prop_assert_eq!(timers.first(), model.values().min().copied());
            }
        }
    }
}
