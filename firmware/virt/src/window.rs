//! The memory of the window.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use towline_window::fault::{Fault, report};
use towline_window::memory::Memory;

use crate::machine::Machine;

/// Its bytes.
const BYTES: usize = 16 << 20;

static TAKEN: AtomicBool = AtomicBool::new(false);
/// A fault was reported.
static FAILED: AtomicBool = AtomicBool::new(false);

fn memory<M: Machine>() -> Option<Memory<'static>> {
    let base = NonNull::new(M::WINDOW as *mut u8)?;
    // SAFETY: the machine guarantees that the memory is mapped, and that nothing else uses it.
    unsafe { Memory::new(base, BYTES) }
}

/// The window. The second call returns `None`.
pub fn take<M: Machine>() -> Option<Memory<'static>> {
    if TAKEN.swap(true, Ordering::AcqRel) {
        return None;
    }
    memory::<M>()
}

/// Tells the host that the firmware ends, if the program has taken the window. The first fault is told: another one may follow from it.
pub fn fail<M: Machine>(fault: &Fault) {
    if TAKEN.load(Ordering::Acquire)
        && !FAILED.swap(true, Ordering::AcqRel)
        && let Some(memory) = memory::<M>()
    {
        let _ = report(&memory, fault); // the window has a header
    }
}
