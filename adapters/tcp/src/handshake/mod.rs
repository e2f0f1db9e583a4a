//! One connection from its first byte to the verdict of its acceptor.

pub(crate) mod failure;
pub(crate) mod pending;
pub(crate) mod replay_limit;
