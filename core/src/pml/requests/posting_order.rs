//! Posted receives by source and posting order, to find the receive for which a peer is to be asked next.
//!
//! Only peers that hold messages back are asked. So the order is built when the first peer holds messages back. It is dropped
//! when no peer does any more, but not before as many operations have used it as building it took steps. While no peer holds
//! messages back, the order costs nothing.
//!
//! The order is a splay tree: over any history, an operation takes on average a number of comparisons that grows with the
//! logarithm of the number of receives. The tree's links are stored in the requests, in the fields that lists use at other times:
//! a posted receive is in no list.

use crate::list::{Links, OptSlot};
use crate::pml::requests::state::{Attachment, Phase, READY, RequestState};
use crate::pool::Pool;

/// The flag of a receive that is in the tree. It shares the bit of [`READY`], as a receive has no mode.
const ORDERED: u8 = READY;

/// The tree. In a [`RequestState`] of the tree, `links.prev` is the subtree of the receives before it, `links.next` the subtree
/// of the receives after it, and `attachment` the parent. The root is its own parent, so a receive without a parent is not in the
/// tree.
#[derive(Debug, Default)]
pub(in crate::pml) struct PostingOrder {
    root: OptSlot,
    /// The tree holds all posted receives.
    pub(in crate::pml) kept: bool,
    /// A peer holds messages back.
    pub(in crate::pml) needed: bool,
    /// The steps that building the tree took, less the operations on it since. The tree is not dropped before this is 0.
    debt: u32,
}

/// The order of receives: source and posting number.
type Key = (u32, u64);

/// A side of a node.
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
    /// Puts all posted receives into the tree. Returns how many requests it looked at.
    #[cold]
    pub(in crate::pml) fn make(&mut self, pool: &mut Pool<'_, RequestState>) -> u64 {
        self.root = OptSlot::NONE;
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

    /// Drops the tree if it is not needed and its `debt` is 0. Returns whether it is still kept.
    pub(in crate::pml) fn drop_if_idle(&mut self, pool: &mut Pool<'_, RequestState>) -> bool {
        if self.kept && !self.needed && self.debt == 0 {
            self.kept = false;
            self.root = OptSlot::NONE;
            for slot in 0..pool.touched() {
                if let Some(state) = pool.at_mut(slot).filter(|state| state.phase == Phase::Posted) {
                    unlink(state);
                }
            }
        }
        self.kept
    }

    /// Adds a posted receive. Returns how many others it looked at.
    pub(in crate::pml) fn insert(&mut self, pool: &mut Pool<'_, RequestState>, slot: u32) -> u64 {
        self.debt = self.debt.saturating_sub(1);
        let link = OptSlot::some(slot);
        let (mut steps, mut at, mut leaf) = (0u64, self.root, None);
        let Some(key) = key(pool, link) else { return 0 };
        while let Some(other) = self::key(pool, at) {
            steps = steps.wrapping_add(1);
            let side = if key < other { Before } else { After };
            leaf = Some((at, side));
            at = child(pool, at, side);
        }
        if let Some(state) = pool.at_mut(slot) {
            (state.links, state.attachment) = (Links::NONE, Attachment(link));
            state.flags |= ORDERED;
        }
        match leaf {
            Some((parent, side)) => {
                attach(pool, parent, side, link);
                self.splay(pool, link);
            }
            None => self.root = link,
        }
        steps
    }

    /// Takes a receive out of the tree. Uses the links alone, since source and number of the receive may have changed.
    #[cold]
    pub(in crate::pml) fn remove(&mut self, pool: &mut Pool<'_, RequestState>, slot: u32) {
        self.debt = self.debt.saturating_sub(1);
        let link = OptSlot::some(slot);
        self.splay(pool, link);
        let (before, after) = (child(pool, link, Before), child(pool, link, After));
        if let Some(state) = pool.at_mut(slot) {
            unlink(state);
        }
        for root in [before, after] {
            set_parent(pool, root, root);
        }
        self.root = if before.is_none() { after } else { before };
        if before.is_none() || after.is_none() {
            return;
        }
        let mut last = before;
        loop {
            let next = child(pool, last, After);
            if next.is_none() {
                break;
            }
            last = next;
        }
        self.splay(pool, last);
        attach(pool, last, After, after);
    }

    /// The first receive from `source` whose number is above `after`, and how many receives the search looked at.
    pub(in crate::pml) fn next(
        &mut self,
        pool: &mut Pool<'_, RequestState>,
        source: u32,
        after: u64,
    ) -> (Option<u32>, u64) {
        self.debt = self.debt.saturating_sub(1);
        let (mut steps, mut at, mut last, mut best) = (0u64, self.root, OptSlot::NONE, OptSlot::NONE);
        while let Some(key) = key(pool, at) {
            steps = steps.wrapping_add(1);
            last = at;
            let side = if key > (source, after) { Before } else { After };
            if side == Before {
                best = at;
            }
            at = child(pool, at, side);
        }
        self.splay(pool, last);
        let found = key(pool, best).is_some_and(|(of, _)| of == source);
        (if found { best.get() } else { None }, steps)
    }

    /// Moves a node to the root, and halves the depth of the nodes on its path.
    fn splay(&mut self, pool: &mut Pool<'_, RequestState>, link: OptSlot) {
        while let Some((parent, side)) = parent(pool, link) {
            match self::parent(pool, parent) {
                None => {}
                Some((_, same)) if same == side => rotate(pool, parent),
                Some(_) => rotate(pool, link),
            }
            rotate(pool, link);
        }
        if link.is_some() {
            self.root = link;
        }
    }
}

fn at<'p>(pool: &'p Pool<'_, RequestState>, link: OptSlot) -> Option<&'p RequestState> {
    pool.at(link.get()?)
}

fn key(pool: &Pool<'_, RequestState>, link: OptSlot) -> Option<Key> {
    at(pool, link).map(|state| (state.peer, state.remote.as_posting()))
}

/// The root of a node's subtree on a side.
fn child(pool: &Pool<'_, RequestState>, link: OptSlot, side: Side) -> OptSlot {
    at(pool, link).map_or(OptSlot::NONE, |state| match side {
        Before => state.links.prev,
        After => state.links.next,
    })
}

/// The parent of a node, and on which side of the parent the node is. `None` for the root.
fn parent(pool: &Pool<'_, RequestState>, link: OptSlot) -> Option<(OptSlot, Side)> {
    let parent = at(pool, link)?.attachment.0;
    let side = || if child(pool, parent, Before) == link { Before } else { After };
    (parent != link && parent.is_some()).then(|| (parent, side()))
}

fn set_parent(pool: &mut Pool<'_, RequestState>, link: OptSlot, parent: OptSlot) {
    if let Some(state) = link.get().and_then(|slot| pool.at_mut(slot)) {
        state.attachment = Attachment(parent);
    }
}

/// Makes `link`, a node or none, the child of `parent` on a side.
fn attach(pool: &mut Pool<'_, RequestState>, parent: OptSlot, side: Side, link: OptSlot) {
    if let Some(state) = parent.get().and_then(|slot| pool.at_mut(slot)) {
        match side {
            Before => state.links.prev = link,
            After => state.links.next = link,
        }
    }
    set_parent(pool, link, parent);
}

/// Clears the links of a receive that is not in the tree any more.
fn unlink(state: &mut RequestState) {
    (state.links, state.attachment) = (Links::NONE, Attachment::NONE);
    state.flags &= !ORDERED;
}

/// Swaps a node with its parent, which becomes its child.
fn rotate(pool: &mut Pool<'_, RequestState>, link: OptSlot) {
    let Some((parent, side)) = parent(pool, link) else { return };
    let grandparent = self::parent(pool, parent);
    let inner = child(pool, link, side.other());
    attach(pool, parent, side, inner);
    attach(pool, link, side.other(), parent);
    match grandparent {
        Some((grandparent, side)) => attach(pool, grandparent, side, link),
        None => set_parent(pool, link, link),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use crate::pml::matching::ANY;
    use crate::pml::requests::state::Remote;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec;
    use zerocopy::FromZeros;

    fn post(pool: &mut Pool<'_, RequestState>, source: u32, number: u64) -> u32 {
        let state = RequestState {
            phase: Phase::Posted,
            peer: source,
            remote: Remote::posting(number),
            ..RequestState::new_zeroed()
        };
        pool.take(state).unwrap().slot()
    }

    proptest! {
        /// Against an ordered map, over random histories, with the tree dropped and built again in between.
        #[test]
        fn p27_finds_the_same_as_an_ordered_map(ops in prop::collection::vec((0..6u8, 0..4u32, any::<u16>()), 0..400)) {
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
                        // The receive matched meanwhile: its source and number are not those of its place in the tree any more.
                        let state = pool.at_mut(slot).unwrap();
                        (state.peer, state.remote, state.phase) = (7, Remote::posting(0), Phase::Done);
                        tree.remove(&mut pool, slot);
                        prop_assert!(!pool.at(slot).unwrap().attachment.is_some());
                        pool.free(pool.handle(slot).unwrap());
                    }
                    4 if pick % 16 == 0 => {
                        (tree.needed, tree.debt) = (false, 0);
                        prop_assert!(!tree.drop_if_idle(&mut pool));
                        prop_assert!(model.values().all(|slot| !pool.at(*slot).unwrap().attachment.is_some()));
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

    /// Few receives are visited, regardless of the order of asks and completions.
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
                after = pool.at(slot).unwrap().remote.as_posting();
                turn += 1;
                if turn % 2 == 0 {
                    tree.remove(&mut pool, slot);
                }
            }
        }
        assert!(asks > u64::from(COUNT) && steps < asks * 16, "{steps} steps for {asks} asks");
    }
}
