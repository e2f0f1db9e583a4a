//! Lists of requests, linked by their slots.

use zerocopy::FromZeros;

use crate::pml::requests::state::RequestState;
use crate::pool::Pool;

/// Requests linked first to last, by index plus one. A request is in at most one list.
#[derive(Clone, Copy, Debug, FromZeros, Default)]
#[repr(C)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl List {
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.head == 0
    }

    /// 0 where there is none: to ask several lists at once.
    #[inline]
    pub const fn any(&self) -> u32 {
        self.head
    }

    /// The first request's slot.
    #[inline]
    pub const fn first(&self) -> Option<u32> {
        self.head.checked_sub(1)
    }

    pub fn push(&mut self, pool: &mut Pool<'_, RequestState>, slot: u32) {
        let link = slot.wrapping_add(1);
        if let Some(state) = pool.at_mut(slot) {
            state.prev = self.tail;
            state.next = 0;
        }
        match self.tail.checked_sub(1).and_then(|tail| pool.at_mut(tail)) {
            Some(tail) => tail.next = link,
            None => self.head = link,
        }
        self.tail = link;
    }

    pub fn remove(&mut self, pool: &mut Pool<'_, RequestState>, slot: u32) {
        let Some(state) = pool.at_mut(slot) else { return };
        let (prev, next) = (state.prev, state.next);
        (state.prev, state.next) = (0, 0);
        match prev.checked_sub(1).and_then(|prev| pool.at_mut(prev)) {
            Some(before) => before.next = next,
            None => self.head = next,
        }
        match next.checked_sub(1).and_then(|next| pool.at_mut(next)) {
            Some(after) => after.prev = prev,
            None => self.tail = prev,
        }
    }

    /// The slot after `slot`.
    pub fn after(pool: &Pool<'_, RequestState>, slot: u32) -> Option<u32> {
        pool.at(slot)?.next.checked_sub(1)
    }
}
