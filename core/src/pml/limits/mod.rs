//! The limits of an engine: what is configured, what peers are told of it, and what it costs.

pub(super) mod config;
pub(super) mod errors;
pub(super) mod memory;
pub(super) mod params;
pub(super) mod pools;
