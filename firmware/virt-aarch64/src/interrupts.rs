//! Critical sections on a single core, by masking interrupts.

use core::arch::asm;

struct SingleCore;
critical_section::set_impl!(SingleCore);

// SAFETY: the start-up code parks all other cores, so code that runs with this core's interrupts masked runs alone.
// `release` restores the mask that `acquire` found, so sections nest.
unsafe impl critical_section::Impl for SingleCore {
    unsafe fn acquire() -> u64 {
        let before;
        // SAFETY: this only masks interrupts. Without `nomem`, the compiler moves no memory access across it.
        unsafe { asm!("mrs {}, daif", "msr daifset, #0xf", out(reg) before, options(nostack)) };
        before
    }

    unsafe fn release(before: u64) {
        // SAFETY: this only restores the mask that `acquire` found.
        unsafe { asm!("msr daif, {}", in(reg) before, options(nostack)) };
    }
}
