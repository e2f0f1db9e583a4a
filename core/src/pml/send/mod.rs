//! Sends.

pub(super) mod cache;
pub(super) mod first;
pub(super) mod held;
pub(super) mod schedule;
pub(super) mod start;
pub(super) mod stream;
