//! The receiver's barrier before it sleeps: `membarrier(2)` for all registered processes. See [`sleep`](crate::sleep).

use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

use crate::atomics::{Ordering, fence};

/// Registers this process for the barriers of receivers that go to sleep. Returns whether that succeeded, and this process can
/// execute such barriers itself.
pub fn register() -> bool {
    let offered = membarrier_query();
    offered.contains_command(MembarrierCommand::GlobalExpedited)
        && offered.contains_command(MembarrierCommand::RegisterGlobalExpedited)
        && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// The receiver's barrier: for all registered processes if `everyone`, else for this thread alone.
pub fn heavy_fence(everyone: bool) {
    if !everyone || membarrier(MembarrierCommand::GlobalExpedited).is_err() {
        fence(Ordering::SeqCst);
    }
}
