//! The engine in the hands of one thread or of several: thread levels, locks, the progress thread.

pub(crate) mod exclusive;
pub(crate) mod levels;
pub(crate) mod progress_policy;
pub(crate) mod shared;
