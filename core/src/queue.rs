//! Queues of indices.

use crate::arena::{Arena, OutOfMemory};

/// A first-in, first-out queue of indices. Its capacity is fixed when it is made. It never overflows, since its users put each
/// index into it at most once.
#[derive(Debug)]
pub(super) struct Queue<'m> {
    ring: &'m mut [u32],
    head: u32,
    tail: u32,
}

impl<'m> Queue<'m> {
    pub fn new(arena: &mut Arena<'m>, count: usize) -> Result<Self, OutOfMemory> {
        Ok(Self { ring: arena.table(Self::room(count))?, head: 0, tail: 0 })
    }

    /// A queue that takes no index.
    pub const fn none() -> Self {
        Self { ring: &mut [], head: 0, tail: 0 }
    }

    pub const fn cost(count: usize) -> usize {
        Arena::cost::<u32>(Self::room(count))
    }

    const fn room(count: usize) -> usize {
        if count > 1 << 30 { 1 << 31 } else { count.next_power_of_two() }
    }

    fn place(&mut self, position: u32) -> Option<&mut u32> {
        let mask = self.ring.len().wrapping_sub(1);
        self.ring.get_mut(position as usize & mask)
    }

    pub fn push(&mut self, index: u32) {
        let tail = self.tail;
        if let Some(place) = self.place(tail) {
            *place = index;
            self.tail = tail.wrapping_add(1);
        }
    }

    pub fn pop(&mut self) -> Option<u32> {
        if self.is_empty() {
            return None;
        }
        let head = self.head;
        self.head = head.wrapping_add(1);
        self.place(head).copied()
    }

    pub fn first(&self) -> Option<u32> {
        let mask = self.ring.len().wrapping_sub(1);
        (!self.is_empty()).then(|| self.ring.get(self.head as usize & mask).copied())?
    }

    pub const fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }

    pub const fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Keeps only the indices for which `wanted` returns `true`.
    pub fn retain(&mut self, mut wanted: impl FnMut(u32) -> bool) {
        for _ in 0..self.len() {
            if let Some(index) = self.pop()
                && wanted(index)
            {
                self.push(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_keep_their_order() {
        let mut block = [0; 64];
        let mut queue = Queue::new(&mut Arena::new(&mut block), 3).unwrap();
        for turn in 0..10 {
            (0..3).for_each(|index| queue.push(turn + index));
            assert_eq!((queue.len(), queue.first()), (3, Some(turn)));
            queue.retain(|index| index != turn + 1);
            assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(turn), Some(turn + 2), None));
        }
    }
}
