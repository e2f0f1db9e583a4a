//! Why an operation, or the set-up of a world, failed.

pub(crate) mod error;
pub(crate) mod setup;
