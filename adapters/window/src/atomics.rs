//! The atomics of the rings: those of `core`, or loom's while a model is checked (`--cfg loom`).

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, Ordering, fence};
