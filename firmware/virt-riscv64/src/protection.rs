//! Physical memory protection. Code is read-only, data and stack are not executable, and the memory below the stack is not
//! accessible, so a stack overflow causes a fault instead of overwriting data. The entries are locked, so that they also
//! apply to machine mode, in which the firmware runs.

use core::arch::asm;

const READ: u64 = 1;
const WRITE: u64 = 1 << 1;
const EXECUTE: u64 = 1 << 2;
/// The entry's range begins at the end of the one before.
const TOP_OF_RANGE: u64 = 1 << 3;
const LOCKED: u64 = 1 << 7;

/// End and rights of each range, with the layout of virt-riscv64.ld. The last range has all other addresses.
const RANGES: [(u64, u64); 8] = [
    (0x8000_0000, READ | WRITE),   // devices
    (0x8020_0000, READ | EXECUTE), // code and constants
    (0x8080_0000, READ | WRITE),   // data
    (0x80a0_0000, 0),              // the guard below the stack
    (0x80a4_0000, READ | WRITE),   // stack
    (0x8200_0000, 0),
    (0x8300_0000, READ | WRITE), // the window to the host
    (1 << 55, 0),
];

/// The configuration register: one byte for each range.
const fn configuration() -> u64 {
    let mut all = 0;
    let mut at = RANGES.len();
    while at > 0 {
        at -= 1;
        all = all << 8 | RANGES[at].1 | TOP_OF_RANGE | LOCKED;
    }
    all
}

/// Enables the protection. The start-up code calls it once.
pub extern "C" fn switch_on() {
    const CONFIGURATION: u64 = configuration();
    // SAFETY: the ranges give all code and data of the linker script the rights that they need.
    unsafe {
        asm!(
            "csrw pmpaddr0, {}",
            "csrw pmpaddr1, {}",
            "csrw pmpaddr2, {}",
            "csrw pmpaddr3, {}",
            "csrw pmpaddr4, {}",
            "csrw pmpaddr5, {}",
            "csrw pmpaddr6, {}",
            "csrw pmpaddr7, {}",
            "csrw pmpcfg0, {}",
            "sfence.vma",
            in(reg) RANGES[0].0 >> 2,
            in(reg) RANGES[1].0 >> 2,
            in(reg) RANGES[2].0 >> 2,
            in(reg) RANGES[3].0 >> 2,
            in(reg) RANGES[4].0 >> 2,
            in(reg) RANGES[5].0 >> 2,
            in(reg) RANGES[6].0 >> 2,
            in(reg) RANGES[7].0 >> 2,
            in(reg) CONFIGURATION,
            options(nostack),
        );
    }
}
