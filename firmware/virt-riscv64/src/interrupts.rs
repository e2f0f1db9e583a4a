//! Critical sections on a single core, by masking interrupts.

use core::arch::asm;

struct SingleCore;
critical_section::set_impl!(SingleCore);

/// The bit of `mstatus` that enables interrupts in machine mode.
const ENABLED: u64 = 1 << 3;

// SAFETY: the start-up code parks all other cores, so code that runs with this core's interrupts masked runs alone.
// `release` restores the bit that `acquire` found, so sections nest.
unsafe impl critical_section::Impl for SingleCore {
    unsafe fn acquire() -> u64 {
        let before: u64;
        // SAFETY: this only masks interrupts. Without `nomem`, the compiler moves no memory access across it.
        unsafe { asm!("csrrci {}, mstatus, 8", out(reg) before, options(nostack)) };
        before & ENABLED
    }

    unsafe fn release(before: u64) {
        // SAFETY: this only restores the bit that `acquire` found.
        unsafe { asm!("csrs mstatus, {}", in(reg) before, options(nostack)) };
    }
}
