//! The receive for which a peer is to be asked next, found by a look at all requests. It has the place of `posting_order` in a build
//! without the feature `indexes`.

use crate::pml::requests::state::{Phase, RequestState};
use crate::pool::Pool;

/// No order is kept.
#[derive(Debug, Default)]
pub(in crate::pml) struct PostingOrder {
    pub(in crate::pml) kept: bool,
    pub(in crate::pml) needed: bool,
}

impl PostingOrder {
    pub(in crate::pml) const fn make(&self, _: &mut Pool<'_, RequestState>) -> u64 {
        0
    }

    pub(in crate::pml) const fn drop_if_idle(&self, _: &mut Pool<'_, RequestState>) -> bool {
        false
    }

    pub(in crate::pml) const fn insert(&self, _: &mut Pool<'_, RequestState>, _slot: u32) -> u64 {
        0
    }

    pub(in crate::pml) const fn remove(&self, _: &mut Pool<'_, RequestState>, _slot: u32) {}

    /// The first receive from `source` whose number is above `after`, and how many requests the search looked at.
    pub(in crate::pml) fn next(&self, pool: &Pool<'_, RequestState>, source: u32, after: u64) -> (Option<u32>, u64) {
        let number = |slot: u32| {
            let state = pool.at(slot).filter(|state| state.phase == Phase::Posted && state.peer == source)?;
            Some((state.remote.as_posting(), slot)).filter(|(number, _)| *number > after)
        };
        let found = (0..pool.touched()).filter_map(number).min();
        (found.map(|(_, slot)| slot), pool.touched().into())
    }
}
