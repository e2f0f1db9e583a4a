//! Sleeping for a time. The processor's timer ends it, or another interrupt.

use core::arch::asm;

use crate::gic;

/// The interrupt of the virtual timer.
const TIMER: u32 = 27;

/// Sleeps for about that many microseconds, or until an interrupt that is enabled.
pub fn sleep(micros: u32) {
    gic::enable(TIMER);
    let hz: u64;
    // SAFETY: this reads a constant register.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nomem, nostack)) };
    let ticks = hz.saturating_mul(u64::from(micros)) / 1_000_000;
    // SAFETY: this sets the virtual timer, waits for its interrupt, and switches the timer off, which takes the interrupt back.
    unsafe {
        asm!(
            "msr cntv_tval_el0, {ticks}",
            "msr cntv_ctl_el0, {on}",
            "isb",
            "wfi",
            "msr cntv_ctl_el0, xzr",
            "isb",
            ticks = in(reg) ticks,
            on = in(reg) 1_u64,
            options(nostack),
        );
    }
}
