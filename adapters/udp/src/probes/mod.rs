//! Probes: whether a peer's port is closed, and whether its host is alive.

pub(crate) mod closed_port;
pub(crate) mod host;
