//! Communicators: a context, and the peers of its ranks.

use crate::pool::Handle;

/// The handle of a communicator, valid until the communicator is deleted. A stale one is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Comm(pub(super) Handle);

/// The peers of a communicator's ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Group<'m> {
    /// Rank r is peer r.
    World {
        /// The number of ranks.
        size: u32,
    },
    /// Rank r is peer `table[r]`. The table belongs to the caller, and lives as long as the engine's memory.
    Table(&'m [u32]),
}
