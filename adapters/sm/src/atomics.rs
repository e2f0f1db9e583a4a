//! The seam for atomics: the core's own, or loom's while a model is checked (`--cfg loom`).

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The cheap half of an asymmetric barrier: keeps the compiler from moving a load before an earlier store. The processor
/// may still do so, until the other half, `membarrier(2)` on the side that goes to sleep, forces a full barrier on every
/// running thread of the processes that registered for it. Loom has no such call, so there both halves are full fences,
/// which is what the pair amounts to.
#[inline]
pub fn light_fence() {
    #[cfg(not(loom))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}
