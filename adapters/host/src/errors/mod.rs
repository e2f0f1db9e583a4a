//! Errors: of operations, of set-up, and of the rejoin of a restarted rank.

pub(crate) mod error;
pub(crate) mod rejoin;
pub(crate) mod setup;
pub(crate) mod worker;
