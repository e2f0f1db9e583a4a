//! Sessions between two ends.
pub mod auth;
pub(crate) mod handshake;
