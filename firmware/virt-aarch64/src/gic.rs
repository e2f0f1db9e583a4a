//! The interrupt controller (GICv2). Interrupts stay masked in the processor, so one that arrives only ends a wait, and nothing has to be
//! taken from the controller: each source takes its request back itself.

use core::sync::atomic::{AtomicBool, Ordering};

/// The distributor's switch, and its registers that enable interrupts, 32 each.
const DISTRIBUTOR: usize = 0x0800_0000;
const ENABLE: usize = DISTRIBUTOR + 0x100;
/// The processor's interface: its switch and its priority mask.
const INTERFACE: usize = 0x0801_0000;
const PRIORITY_MASK: usize = INTERFACE + 0x4;
/// Interrupts that a controller may have.
const MOST: u32 = 1020;

static IS_ON: AtomicBool = AtomicBool::new(false);

/// Lets an interrupt end waits.
pub fn enable(interrupt: u32) {
    if interrupt >= MOST {
        return;
    }
    if !IS_ON.swap(true, Ordering::Relaxed) {
        // SAFETY: the addresses are registers of the interrupt controller, mapped as Device memory.
        unsafe {
            (DISTRIBUTOR as *mut u32).write_volatile(1);
            (PRIORITY_MASK as *mut u32).write_volatile(0xff);
            (INTERFACE as *mut u32).write_volatile(1);
        }
    }
    let register = ENABLE + (interrupt / 32 * 4) as usize;
    // SAFETY: as above. A bit that is 0 changes nothing. The machine has one processor, which gets all interrupts.
    unsafe { (register as *mut u32).write_volatile(1 << (interrupt % 32)) };
}
