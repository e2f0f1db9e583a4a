//! Sessions: how two ends agree on one, and how its datagrams are authenticated.

pub mod auth;
pub(crate) mod handshake;
pub(crate) mod state;

pub use auth::{Authenticator, End};
