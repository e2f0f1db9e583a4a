//! Posted receives, unexpected messages and held-back sends in hash tables: a search takes a constant number of steps, however many
//! there are.

mod hash;
mod held_table;
mod posted_table;
mod table;
mod unexpected_table;

pub(super) use hash::Hasher;
pub(in crate::pml) use held_table::HeldTable;
#[cfg(test)]
pub(super) use held_table::LEAST_REQUESTS;
pub(super) use posted_table::PostedTable;
#[cfg(test)]
pub(super) use table::buckets;
pub(super) use unexpected_table::UnexpectedTable;
