//! Receives: posting, the fast path of short messages, first and later fragments, and probes.

pub(super) mod first;
pub(super) mod fragments;
pub(super) mod post;
pub(super) mod probe;
pub(super) mod respond;
pub(super) mod short;
