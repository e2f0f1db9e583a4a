//! Sleeping for a time. The processor's timer ends it, or an interrupt of a device.

use core::arch::asm;

use crate::TICKS_PER_MICROSECOND;

/// The register with the time of the next interrupt of the timer, in the core-local interruptor.
const COMPARE: usize = 0x0200_4000;
/// The bits of the timer's interrupt and of those of the interrupt controller in `mie`.
const SOURCES: u64 = 1 << 7 | 1 << 11;

/// Sleeps for about that many microseconds, or until an interrupt that is enabled.
pub fn sleep(micros: u64) {
    let now: u64;
    // SAFETY: this reads a counter register.
    unsafe { asm!("rdtime {}", out(reg) now, options(nomem, nostack)) };
    let then = now.saturating_add(micros.saturating_mul(TICKS_PER_MICROSECOND));
    // SAFETY: the address is a register of the interruptor. The interrupts are enabled, but masked in `mstatus`, so they
    // only end the wait. A time that never comes takes it back.
    unsafe {
        (COMPARE as *mut u64).write_volatile(then);
        asm!("csrs mie, {}", "wfi", "csrc mie, {}", in(reg) SOURCES, in(reg) SOURCES, options(nostack));
        (COMPARE as *mut u64).write_volatile(u64::MAX);
    }
}
