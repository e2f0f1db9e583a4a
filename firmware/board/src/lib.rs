//! Bare-metal support for QEMU's `virt` machine with a 64-bit Arm core: start-up, memory map, UART, the emulator's
//! semihosting services, stack measurement.
//!
//! A program links this crate and defines its entry point:
//!
//! ```ignore
//! #[unsafe(no_mangle)]
//! fn program() -> u32 {
//!     board::print!("hello\n");
//!     0 // the exit status of the emulator
//! }
//! ```
#![no_std]

mod fault;
mod interrupts;
mod mmu;
pub mod semihosting;
pub mod stack;
mod start;
pub mod uart;

pub use uart::CONSOLE;

use core::sync::atomic::{AtomicBool, Ordering};

/// Microseconds since the machine started.
pub fn micros() -> u64 {
    let (ticks, hz): (u64, u64);
    // SAFETY: this reads a counter register and a constant register.
    unsafe {
        core::arch::asm!("isb", "mrs {}, cntvct_el0", "mrs {}, cntfrq_el0", out(reg) ticks, out(reg) hz, options(nostack));
    }
    ticks.wrapping_mul(1_000_000).checked_div(hz).unwrap_or(0)
}

/// `N` words of memory in `.bss`, which [`take`](Self::take) gives to one owner.
#[derive(Debug)]
pub struct Block<const N: usize> {
    taken: AtomicBool,
    bytes: core::cell::UnsafeCell<[u64; N]>,
}

// SAFETY: only `take` gives access to the bytes, and it succeeds once.
unsafe impl<const N: usize> Sync for Block<N> {}

impl<const N: usize> Block<N> {
    /// `N` words of zeros.
    pub const fn new() -> Self {
        Self { taken: AtomicBool::new(false), bytes: core::cell::UnsafeCell::new([0; N]) }
    }

    /// The bytes, which are zero. The second call and all later ones return `None`.
    pub fn take(&'static self) -> Option<&'static mut [u8]> {
        if self.taken.swap(true, Ordering::AcqRel) {
            return None;
        }
        // SAFETY: only the first call gets here. The array has `N` words, is initialised, and is static.
        Some(unsafe { core::slice::from_raw_parts_mut(self.bytes.get().cast(), N * 8) })
    }
}

impl<const N: usize> Default for Block<N> {
    fn default() -> Self {
        Self::new()
    }
}
