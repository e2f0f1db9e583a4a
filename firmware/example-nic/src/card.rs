//! Where the window and the frame device are.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use dpu::Dpu;
use dpu::rails::LINKS;
use towline_window::fault::{Fault, report};
use towline_window::memory::Memory;

use crate::board::Nic;
use crate::frames::{self, Frames};

/// The memory that the host maps by the BAR: first the window, then the frame device, which only the card uses.
const BAR: usize = 0x2100_0000;
const WINDOW: usize = 15 << 20;
const FRAMES: usize = BAR + WINDOW;

/// Whether the program has the window.
static HAS_WINDOW: AtomicBool = AtomicBool::new(false);

/// The memory at an address of the card.
fn memory(at: usize, bytes: usize) -> Option<Memory<'static>> {
    // SAFETY: the card has memory there, which memory.x leaves out, so no reference to it exists.
    unsafe { Memory::new(NonNull::new(at as *mut u8)?, bytes) }
}

/// The same, if `taken` was not set before.
fn take(taken: &AtomicBool, at: usize, bytes: usize) -> Option<Memory<'static>> {
    if taken.swap(true, Ordering::AcqRel) { None } else { memory(at, bytes) }
}

/// Tells the host that the firmware ends, if the program has a window.
pub fn fail(fault: &Fault) {
    if HAS_WINDOW.load(Ordering::Acquire)
        && let Some(memory) = memory(BAR, WINDOW)
    {
        let _ = report(&memory, fault); // the window has a header
    }
}

impl Dpu for Nic {
    type Interface = Frames;

    /// The emulator may stop for some tens of milliseconds at any time. Of a real card: the longest time without a poll.
    const PATIENCE_MILLIS: u64 = 50;

    fn window() -> Option<Memory<'static>> {
        take(&HAS_WINDOW, BAR, WINDOW)
    }

    /// The card has one interface. A second one would be the second link.
    fn interfaces() -> [Option<Frames>; LINKS] {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        [take(&TAKEN, FRAMES, frames::BYTES).and_then(Frames::new), None]
    }

    /// The card has no random numbers and no clock. The window keeps the number of the start before.
    fn boot() -> u32 {
        0
    }

    /// The card has no interrupt for commands or frames, so the processor must not sleep.
    fn pause() {}
}
