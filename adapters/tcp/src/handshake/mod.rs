//! The handshake of one connection: from its first byte to the acceptor's verdict.

pub(crate) mod failure;
pub(crate) mod pending;
pub(crate) mod replay_limit;
