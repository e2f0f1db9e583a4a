//! The limits of an engine: its configuration, the parameters that it publishes for peers, and the memory that it needs.

pub(super) mod config;
pub(super) mod errors;
pub(super) mod memory;
pub(super) mod params;
pub(super) mod pools;
