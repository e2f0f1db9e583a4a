//! The atomics of the rings: those of `core`, or loom's while a model is checked (`--cfg window_model`).

#[cfg(not(window_model))]
pub use core::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(window_model)]
pub use loom::sync::atomic::{AtomicU32, Ordering, fence};
