//! The atomics that the lock-free parts use: those of `core`, or loom's while a model is checked (`--cfg loom`).

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The cheap half of an asymmetric barrier: it keeps the compiler from moving a load before an earlier store.
///
/// The processor may still reorder them, until the other half forces a full barrier on every running thread of the registered
/// processes. That other half is `membarrier(2)`, called by the side that goes to sleep. Loom has no such call, so under loom
/// both halves are full fences, which is what the pair amounts to.
#[inline]
pub fn light_fence() {
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}
