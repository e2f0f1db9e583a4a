//! Intrusive lists: their links are in the items of a [`Pool`].

use zerocopy::FromZeros;

use crate::pool::Pool;

/// The number of a slot, or none, in four bytes. Zeros mean none.
///
/// The number is stored plus one, so `u32::MAX` is no slot. Pools have fewer slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromZeros)]
#[repr(transparent)]
pub(crate) struct OptSlot(u32);

impl OptSlot {
    pub const NONE: Self = Self(0);

    #[inline(always)]
    pub const fn some(slot: u32) -> Self {
        Self(slot.wrapping_add(1))
    }

    #[inline(always)]
    pub const fn get(self) -> Option<u32> {
        self.0.checked_sub(1)
    }

    #[inline(always)]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    #[inline(always)]
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }

    /// Whether this is the given slot.
    #[inline(always)]
    pub const fn is(self, slot: u32) -> bool {
        self.0 == slot.wrapping_add(1)
    }

    /// The number as it is stored, 0 for none. It lets a caller test several slots at once.
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

/// The next and the previous item in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromZeros)]
#[repr(C)]
pub(crate) struct Links {
    pub next: OptSlot,
    pub prev: OptSlot,
}

impl Links {
    pub const NONE: Self = Self { next: OptSlot::NONE, prev: OptSlot::NONE };
}

/// An item that can be in one list at a time.
pub(crate) trait Linked {
    fn links(&self) -> Links;
    fn links_mut(&mut self) -> &mut Links;
}

/// A doubly linked list of items of one pool, first in, first out. The items are named by their slots.
#[derive(Clone, Copy, Debug, FromZeros, Default)]
#[repr(C)]
pub(crate) struct List {
    head: OptSlot,
    tail: OptSlot,
}

impl List {
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// The slot of the first item.
    #[inline]
    pub const fn first(&self) -> OptSlot {
        self.head
    }

    /// The slot of the last item.
    #[inline]
    pub const fn last(&self) -> OptSlot {
        self.tail
    }

    /// The slot after `slot`.
    pub fn after<T: Linked + FromZeros + Copy>(pool: &Pool<'_, T>, slot: u32) -> OptSlot {
        pool.at(slot).map_or(OptSlot::NONE, |item| item.links().next)
    }

    /// Appends an item that is in no list.
    pub fn push<T: Linked + FromZeros + Copy>(&mut self, pool: &mut Pool<'_, T>, slot: u32) {
        let link = OptSlot::some(slot);
        if let Some(item) = pool.at_mut(slot) {
            *item.links_mut() = Links { next: OptSlot::NONE, prev: self.tail };
        }
        match self.tail.get().and_then(|tail| pool.at_mut(tail)) {
            Some(tail) => tail.links_mut().next = link,
            None => self.head = link,
        }
        self.tail = link;
    }

    /// Takes out an item that is in this list.
    pub fn remove<T: Linked + FromZeros + Copy>(&mut self, pool: &mut Pool<'_, T>, slot: u32) {
        let Some(item) = pool.at_mut(slot) else { return };
        let Links { next, prev } = core::mem::replace(item.links_mut(), Links::NONE);
        match prev.get().and_then(|prev| pool.at_mut(prev)) {
            Some(before) => before.links_mut().next = next,
            None => self.head = next,
        }
        match next.get().and_then(|next| pool.at_mut(next)) {
            Some(after) => after.links_mut().prev = prev,
            None => self.tail = prev,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use proptest::prelude::*;
    use std::{vec, vec::Vec};

    #[derive(Clone, Copy, FromZeros)]
    #[repr(C)]
    struct Item(Links);

    impl Linked for Item {
        fn links(&self) -> Links {
            self.0
        }

        fn links_mut(&mut self) -> &mut Links {
            &mut self.0
        }
    }

    proptest! {
        #[test]
        fn a_list_keeps_the_order_of_a_vector(ops in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut block = vec![0u8; 1024];
            let mut pool = Pool::new(&mut Arena::new(&mut block), 8).unwrap();
            let (mut list, mut model) = (List::default(), Vec::new());
            for op in ops {
                if op % 2 == 0 && model.len() < 8 {
                    let slot = pool.take(Item(Links::NONE)).unwrap_or_else(|_| panic!("there are eight")).slot();
                    list.push(&mut pool, slot);
                    model.push(slot);
                } else if !model.is_empty() {
                    let slot = model.remove(usize::from(op) % model.len());
                    list.remove(&mut pool, slot);
                    let handle = pool.handle(slot).unwrap();
                    pool.free(handle);
                }
                let walk = core::iter::successors(list.first().get(), |slot| List::after(&pool, *slot).get());
                prop_assert_eq!(walk.collect::<Vec<_>>(), model.clone());
                prop_assert_eq!(list.last().get(), model.last().copied());
                prop_assert_eq!(list.is_empty(), model.is_empty());
            }
        }
    }
}
