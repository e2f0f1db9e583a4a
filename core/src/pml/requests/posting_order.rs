//! PostingOrder receives by source and in posting order, to find the one that a peer is to be asked for next.
//!
//! Only peers without credit are asked, so this order is made when the first of them is, and given up when none is left
//! and what it took to make has been earned back: an engine that nobody holds anything back from does nothing for it.
//! It is a splay tree: each step takes a number of further steps that grows with the logarithm of the receives, on the
//! average over any history. Its links lie in the requests themselves, where those of lists lie at other times: a receive
//! that is posted is in no list.

use crate::pml::requests::state::{ORDERED, Phase, RequestState};
use crate::pool::Pool;

/// The tree. A link is a slot plus one; 0 is none. In [`State`], `next` and `prev` are the links to what comes before and
/// after, and `cached` the link upwards, at the top to itself: so it is 0 where a receive is not in the tree.
#[derive(Debug, Default)]
pub(in crate::pml) struct PostingOrder {
    root: u32,
    /// The tree has all receives that are posted.
    pub(in crate::pml) kept: bool,
    /// A peer holds back.
    pub(in crate::pml) needed: bool,
    /// Work that making the tree took, less what was done with it since.
    debt: u32,
}

/// What receives are ordered by: source and posting number.
pub(in crate::pml) type Key = (u32, u64);

/// Which side of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

use Side::{After, Before};

impl Side {
    const fn other(self) -> Self {
        match self {
            Before => After,
            After => Before,
        }
    }
}

impl PostingOrder {
    /// Puts all receives that are posted into the tree; returns how many requests it looked at.
    #[cold]
    pub(in crate::pml) fn make(&mut self, pool: &mut Pool<'_, RequestState>) -> u64 {
        self.root = 0;
        self.kept = true;
        self.needed = true;
        let mut steps = u64::from(pool.touched());
        for slot in 0..pool.touched() {
            if pool.at(slot).is_some_and(|state| state.phase == Phase::Posted) {
                steps = steps.saturating_add(self.insert(pool, slot));
            }
        }
        self.debt = u32::try_from(steps).unwrap_or(u32::MAX);
        steps
    }

    /// Gives the tree up if nobody needs it and it has earned what it cost. Says whether it is still kept.
    pub(in crate::pml) fn drop_if_idle(&mut self, pool: &mut Pool<'_, RequestState>) -> bool {
        if self.kept && !self.needed && self.debt == 0 {
            self.kept = false;
            self.root = 0;
            for slot in 0..pool.touched() {
                if let Some(state) = pool.at_mut(slot).filter(|state| state.phase == Phase::Posted) {
                    (state.next, state.prev, state.cached) = (0, 0, 0);
                    state.flags &= !ORDERED;
                }
            }
        }
        self.kept
    }

    /// Adds a receive that is posted; returns how many others it looked at.
    pub(in crate::pml) fn insert(&mut self, pool: &mut Pool<'_, RequestState>, slot: u32) -> u64 {
        self.debt = self.debt.saturating_sub(1);
        let (mut steps, mut at, mut above) = (0u64, self.root, None);
        let Some(key) = key(pool, slot.wrapping_add(1)) else { return 0 };
        while let Some(other) = self::key(pool, at) {
            steps = steps.wrapping_add(1);
            let side = if key < other { Before } else { After };
            above = Some((at, side));
            at = below(pool, at, side);
        }
        let link = slot.wrapping_add(1);
        if let Some(state) = pool.at_mut(slot) {
            (state.next, state.prev, state.cached) = (0, 0, link);
            state.flags |= ORDERED;
        }
        match above {
            Some((above, side)) => {
                hang(pool, above, side, link);
                self.raise(pool, link);
            }
            None => self.root = link,
        }
        steps
    }

    /// Takes a receive out, whatever became of it meanwhile. Goes by links alone: its source and number may be others by
    /// now.
    #[cold]
    pub(in crate::pml) fn remove(&mut self, pool: &mut Pool<'_, RequestState>, slot: u32) {
        self.debt = self.debt.saturating_sub(1);
        let link = slot.wrapping_add(1);
        self.raise(pool, link);
        let (before, after) = (below(pool, link, Before), below(pool, link, After));
        if let Some(state) = pool.at_mut(slot) {
            (state.next, state.prev, state.cached) = (0, 0, 0);
            state.flags &= !ORDERED;
        }
        for part in [before, after] {
            set_above(pool, part, part);
        }
        self.root = if before == 0 { after } else { before };
        if before == 0 || after == 0 {
            return;
        }
        let mut last = before;
        while let next @ 1.. = below(pool, last, After) {
            last = next;
        }
        self.raise(pool, last);
        hang(pool, last, After, after);
    }

    /// The receive of `source` that was posted next after number `after`, and how many were looked at to find it.
    pub(in crate::pml) fn next(
        &mut self,
        pool: &mut Pool<'_, RequestState>,
        source: u32,
        after: u64,
    ) -> (Option<u32>, u64) {
        self.debt = self.debt.saturating_sub(1);
        let (mut steps, mut at, mut last, mut best) = (0u64, self.root, 0, 0);
        while let Some(key) = key(pool, at) {
            steps = steps.wrapping_add(1);
            last = at;
            let side = if key > (source, after) { Before } else { After };
            if side == Before {
                best = at;
            }
            at = below(pool, at, side);
        }
        self.raise(pool, last);
        let found = key(pool, best).is_some_and(|(of, _)| of == source);
        (if found { best.checked_sub(1) } else { None }, steps)
    }

    /// Brings a node to the top, and all on the way there half as deep.
    fn raise(&mut self, pool: &mut Pool<'_, RequestState>, link: u32) {
        while let Some((above, side)) = above(pool, link) {
            match self::above(pool, above) {
                None => {}
                Some((_, same)) if same == side => rotate(pool, above),
                Some(_) => rotate(pool, link),
            }
            rotate(pool, link);
        }
        if link != 0 {
            self.root = link;
        }
    }
}

pub(in crate::pml) fn at<'p>(pool: &'p Pool<'_, RequestState>, link: u32) -> Option<&'p RequestState> {
    pool.at(link.checked_sub(1)?)
}

pub(in crate::pml) fn key(pool: &Pool<'_, RequestState>, link: u32) -> Option<Key> {
    at(pool, link).map(|state| (state.peer, state.remote))
}

fn below(pool: &Pool<'_, RequestState>, link: u32, side: Side) -> u32 {
    at(pool, link).map_or(0, |state| if side == Before { state.next } else { state.prev })
}

/// What a node hangs from, and on which side; `None` at the top.
fn above(pool: &Pool<'_, RequestState>, link: u32) -> Option<(u32, Side)> {
    let above = at(pool, link)?.cached;
    (above != link && above != 0).then(|| (above, if below(pool, above, Before) == link { Before } else { After }))
}

fn set_above(pool: &mut Pool<'_, RequestState>, link: u32, above: u32) {
    if let Some(state) = link.checked_sub(1).and_then(|slot| pool.at_mut(slot)) {
        state.cached = above;
    }
}

/// Hangs a node, or none, from another.
fn hang(pool: &mut Pool<'_, RequestState>, above: u32, side: Side, link: u32) {
    if let Some(state) = above.checked_sub(1).and_then(|slot| pool.at_mut(slot)) {
        *(if side == Before { &mut state.next } else { &mut state.prev }) = link;
    }
    set_above(pool, link, above);
}

/// Puts a node in the place of the one that it hangs from, which hangs from it then.
fn rotate(pool: &mut Pool<'_, RequestState>, link: u32) {
    let Some((parent, side)) = above(pool, link) else { return };
    let grandparent = above(pool, parent);
    let inner = below(pool, link, side.other());
    hang(pool, parent, side, inner);
    hang(pool, link, side.other(), parent);
    match grandparent {
        Some((grandparent, side)) => hang(pool, grandparent, side, link),
        None => set_above(pool, link, link),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use crate::pml::matching::ANY;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec;
    use zerocopy::FromZeros;

    fn post(pool: &mut Pool<'_, RequestState>, source: u32, number: u64) -> u32 {
        let state = RequestState { phase: Phase::Posted, peer: source, remote: number, ..RequestState::new_zeroed() };
        pool.take(state).unwrap().slot()
    }

    proptest! {
        /// Against an ordered map, over random histories, with the tree given up and made anew in between.
        #[test]
        fn p27_finds_what_an_ordered_map_finds(ops in prop::collection::vec((0..6u8, 0..4u32, any::<u16>()), 0..400)) {
            let mut block = vec![0u8; 64 * 256];
            let mut pool = Pool::new(&mut Arena::new(&mut block), 100).unwrap();
            let (mut tree, mut model) = (PostingOrder::default(), BTreeMap::new());
            tree.make(&mut pool);
            for (number, (op, source, pick)) in (1u64..).zip(ops) {
                let source = if source == 3 { ANY } else { source };
                let any = model.keys().nth(usize::from(pick) % model.len().max(1)).copied();
                match op {
                    0..=2 if model.len() < 100 => {
                        let slot = post(&mut pool, source, number);
                        tree.insert(&mut pool, slot);
                        model.insert((source, number), slot);
                    }
                    3 => if let Some(slot) = any.and_then(|key| model.remove(&key)) {
                        // It matched meanwhile: these are no longer what it was filed under.
                        let state = pool.at_mut(slot).unwrap();
                        (state.peer, state.remote, state.phase) = (7, 0, Phase::Done);
                        tree.remove(&mut pool, slot);
                        prop_assert_eq!(pool.at(slot).unwrap().cached, 0);
                        pool.free(pool.handle(slot).unwrap());
                    }
                    4 if pick % 16 == 0 => {
                        (tree.needed, tree.debt) = (false, 0);
                        prop_assert!(!tree.drop_if_idle(&mut pool));
                        prop_assert!(model.values().all(|slot| pool.at(*slot).unwrap().cached == 0));
                        tree.make(&mut pool);
                    }
                    _ => {
                        let after = u64::from(pick) % (number + 1);
                        let expected = model.range((source, after + 1)..=(source, u64::MAX)).next().map(|(_, slot)| *slot);
                        prop_assert_eq!(tree.next(&mut pool, source, after).0, expected);
                    }
                }
            }
        }
    }

    /// In whatever order receives are asked for and end, few are looked at.
    #[test]
    fn p27_steps_are_few_at_any_depth() {
        const COUNT: u32 = 20_000;
        let mut block = vec![0u8; 128 * COUNT as usize];
        let mut pool = Pool::new(&mut Arena::new(&mut block), COUNT).unwrap();
        for number in 0..COUNT {
            post(&mut pool, number % 3, u64::from(number));
        }
        let mut tree = PostingOrder::default();
        let mut steps = tree.make(&mut pool);
        let mut asks = 0;
        for source in [0, 1, 2, ANY] {
            let (mut after, mut turn) = (0, 0);
            loop {
                let (found, looked) = tree.next(&mut pool, source, after);
                (asks, steps) = (asks + 1, steps + looked);
                let Some(slot) = found else { break };
                after = pool.at(slot).unwrap().remote;
                turn += 1;
                if turn % 2 == 0 {
                    tree.remove(&mut pool, slot);
                }
            }
        }
        assert!(asks > u64::from(COUNT) && steps < asks * 16, "{steps} steps for {asks} asks");
    }
}
