//! The memory protection unit. Code is read-only, data and stack are not executable, and the memory below the stack is not
//! accessible, so a stack overflow causes a fault instead of overwriting data.

use cortex_m::asm;
use cortex_m::peripheral::MPU;

const ENABLED: u32 = 1;
const NORMAL: u32 = 1 << 17 | 1 << 16;
const DEVICE: u32 = 1 << 16;
const READ_WRITE: u32 = 0b011 << 24;
const READ_ONLY: u32 = 0b110 << 24;
const NO_EXECUTE: u32 = 1 << 28;

/// The field for a size, which is a power of two.
const fn size(bytes: u32) -> u32 {
    (bytes.trailing_zeros() - 1) << 1
}

/// Start and attributes of each region, with the layout of memory.x. All other addresses cause a fault.
const REGIONS: [(u32, u32); 3] = [
    (0x0000_0000, size(4 << 20) | NORMAL | READ_ONLY),
    (0x2000_0000, size(4 << 20) | NORMAL | READ_WRITE | NO_EXECUTE),
    (0x4000_0000, size(512 << 20) | DEVICE | READ_WRITE | NO_EXECUTE),
];

/// Enables the protection.
pub fn switch_on(unit: &mut MPU) {
    for (number, (start, attributes)) in (0..).zip(REGIONS) {
        // SAFETY: the regions give all code and data of the linker script the rights that they need.
        unsafe {
            unit.rnr.write(number);
            unit.rbar.write(start);
            unit.rasr.write(attributes | ENABLED);
        }
    }
    // SAFETY: as above. The unit is off in the handler of faults.
    unsafe { unit.ctrl.write(ENABLED) };
    asm::dsb();
    asm::isb();
}
