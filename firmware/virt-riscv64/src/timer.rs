//! Sleeping for a time. The processor's timer wakes it.

use core::arch::asm;

use crate::TICKS_PER_MICROSECOND;

/// The register with the time of the next interrupt of the timer, in the core-local interruptor.
const COMPARE: usize = 0x0200_4000;
/// The bit of the timer's interrupt in `mie`.
const TIMER: u64 = 1 << 7;

/// Sleeps for about that many microseconds.
pub fn sleep(micros: u32) {
    let now: u64;
    // SAFETY: this reads a counter register.
    unsafe { asm!("rdtime {}", out(reg) now, options(nomem, nostack)) };
    let then = now.saturating_add(u64::from(micros).saturating_mul(TICKS_PER_MICROSECOND));
    // SAFETY: the address is a register of the interruptor. The interrupt is enabled, but interrupts are masked in `mstatus`, so it
    // only ends the wait. A time that never comes takes it back.
    unsafe {
        (COMPARE as *mut u64).write_volatile(then);
        asm!("csrs mie, {}", "wfi", "csrc mie, {}", in(reg) TIMER, in(reg) TIMER, options(nostack));
        (COMPARE as *mut u64).write_volatile(u64::MAX);
    }
}
