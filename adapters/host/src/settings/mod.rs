//! What can be set.

pub(crate) mod config;
