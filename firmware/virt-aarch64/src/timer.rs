//! Sleeping for a time. The processor's timer wakes it.

use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering};

/// The interrupt controller (GICv2): the distributor's switch and its first register that enables interrupts; the priority mask and
/// the switch of the processor's interface.
const DISTRIBUTOR: usize = 0x0800_0000;
const ENABLED: usize = DISTRIBUTOR + 0x100;
const INTERFACE: usize = 0x0801_0000;
const PRIORITY_MASK: usize = INTERFACE + 0x4;
/// The interrupt of the virtual timer.
const TIMER: u32 = 1 << 27;

static IS_READY: AtomicBool = AtomicBool::new(false);

/// Lets the timer's interrupt reach the processor. It stays masked there, so it only ends a wait.
fn prepare() {
    if IS_READY.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the addresses are registers of the interrupt controller, mapped as Device memory.
    unsafe {
        (DISTRIBUTOR as *mut u32).write_volatile(1);
        (PRIORITY_MASK as *mut u32).write_volatile(0xff);
        (INTERFACE as *mut u32).write_volatile(1);
        (ENABLED as *mut u32).write_volatile(TIMER);
    }
}

/// Sleeps for about that many microseconds.
pub fn sleep(micros: u32) {
    prepare();
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
