//! Sends: the fast path, held-back sends, first fragments, and the stream of later ones over all links.

pub(super) mod cache;
pub(super) mod cancel;
pub(super) mod first;
pub(super) mod held;
pub(super) mod schedule;
pub(super) mod start;
pub(super) mod stream;
