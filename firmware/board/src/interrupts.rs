//! Critical sections of a single core: interrupts are masked.

use core::arch::asm;

struct SingleCore;
critical_section::set_impl!(SingleCore);

// SAFETY: other cores are parked by the start-up code, so what masks the interrupts of this one has it alone; the mask
// as it was before comes back with `release`, so sections nest.
unsafe impl critical_section::Impl for SingleCore {
    unsafe fn acquire() -> u64 {
        let before;
        // SAFETY: masks interrupts; orders memory accesses (no `nomem`).
        unsafe { asm!("mrs {}, daif", "msr daifset, #0xf", out(reg) before, options(nostack)) };
        before
    }

    unsafe fn release(before: u64) {
        // SAFETY: restores the mask that `acquire` found.
        unsafe { asm!("msr daif, {}", in(reg) before, options(nostack)) };
    }
}
