//! The limits of an engine: its configuration, what peers are told of it, and the memory that it takes.

pub(super) mod config;
pub(super) mod errors;
pub(super) mod memory;
pub(super) mod params;
pub(super) mod pools;
