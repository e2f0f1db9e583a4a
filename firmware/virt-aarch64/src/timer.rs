//! Sleeping for a time. The processor's timer ends it, or another interrupt.

use core::arch::asm;

use crate::gic;

/// The interrupt of the virtual timer.
const TIMER: u32 = 27;

/// Sleeps for about that many microseconds, or until an interrupt that is enabled.
pub fn sleep(micros: u64) {
    gic::enable(TIMER);
    let (now, hz): (u64, u64);
    // SAFETY: this reads a counter register and a constant register.
    unsafe {
        asm!("isb", "mrs {}, cntvct_el0", "mrs {}, cntfrq_el0", out(reg) now, out(reg) hz, options(nomem, nostack))
    };
    let then = now.saturating_add(hz.saturating_mul(micros) / 1_000_000);
    // SAFETY: this sets the virtual timer, waits for its interrupt, and switches the timer off, which takes the interrupt back.
    unsafe {
        asm!(
            "msr cntv_cval_el0, {then}",
            "msr cntv_ctl_el0, {on}",
            "isb",
            "wfi",
            "msr cntv_ctl_el0, xzr",
            "isb",
            then = in(reg) then,
            on = in(reg) 1_u64,
            options(nostack),
        );
    }
}
