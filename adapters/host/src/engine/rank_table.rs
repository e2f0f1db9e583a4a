//! The table of a communicator's peers, at an address that does not change.

use std::ptr::NonNull;

/// The peer of each rank of a communicator.
pub(crate) struct RankTable(NonNull<[u32]>);

impl RankTable {
    pub fn new(peers: Box<[u32]>) -> Self {
        Self(NonNull::from(Box::leak(peers)))
    }

    /// The peers, by rank.
    pub fn peers(&self) -> &[u32] {
        // SAFETY: a live box of this table's, freed in `drop` only.
        unsafe { self.0.as_ref() }
    }

    /// The table, with an unbounded lifetime.
    ///
    /// # Safety
    /// The result is not used any more when this table is dropped.
    pub unsafe fn get(&self) -> &'static [u32] {
        // SAFETY: a live box of this table's, freed in `drop` only; the caller ensures that the result is not used after that.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for RankTable {
    fn drop(&mut self) {
        // SAFETY: made from a box in `new`. The callers of `get` promised that nothing refers to it any more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
