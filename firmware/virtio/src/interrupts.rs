//! Interrupts of the devices. A program that polls takes no interrupt: it masks them, and an interrupt only ends a wait.
//!
//! A device requests an interrupt when it has a frame for the program, and the request stays until it is acknowledged. So a program that
//! acknowledges first, then polls, and then waits misses no frame.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::nic::Slots;

/// The register with the reasons of a request, and the one that takes them back (virtio 1.2, 4.2.2).
const STATUS: usize = 0x60;
const ACKNOWLEDGE: usize = 0x64;

/// A bit for each slot whose device is in use.
static USED: AtomicU32 = AtomicU32::new(0);

/// Remembers that the device of a slot is in use.
pub(crate) fn uses(slot: usize) {
    let bit = u32::try_from(slot).ok().and_then(|slot| 1_u32.checked_shl(slot)).unwrap_or(0);
    USED.fetch_or(bit, Ordering::Relaxed);
}

/// The slots whose devices are in use: those that [`Nic::find`](crate::Nic::find) has found.
pub fn slots() -> impl Iterator<Item = u32> {
    let used = USED.load(Ordering::Relaxed);
    (0..u32::BITS).filter(move |slot| used >> slot & 1 != 0)
}

/// Takes the requests of all devices in use back.
///
/// # Safety
/// As for [`Nic::find`](crate::Nic::find), which was called with the same slots.
pub unsafe fn acknowledge(at: Slots) {
    for slot in slots() {
        let base = at.base.wrapping_add(at.step.wrapping_mul(slot as usize));
        // SAFETY: a device is there, as the caller guarantees. The driver does not use these two registers, and both may be accessed at
        // any time.
        unsafe {
            let reasons = (base.wrapping_add(STATUS) as *const u32).read_volatile();
            (base.wrapping_add(ACKNOWLEDGE) as *mut u32).write_volatile(reasons);
        }
    }
}
