//! The memory map. Virtual addresses equal physical addresses, and each block has access permissions. Without a map all
//! memory would be Device memory, on which a real core faults at the first unaligned access.

use core::arch::asm;
use core::cell::UnsafeCell;

const BLOCK: u64 = 0b01;
const TABLE: u64 = 0b11;
const ACCESSED: u64 = 1 << 10;
const READ_ONLY: u64 = 0b10 << 6;
const NO_EXECUTE: u64 = 0b11 << 53;
/// Attribute 0 of MAIR below.
const DEVICE: u64 = BLOCK | ACCESSED | NO_EXECUTE;
/// Attribute 1 of MAIR below, inner shareable.
const NORMAL: u64 = BLOCK | ACCESSED | 1 << 2 | 0b11 << 8;

#[repr(C, align(4096))]
struct Table(UnsafeCell<[u64; 512]>);

// SAFETY: the only core writes it before the MMU is on. After that, only the MMU reads it.
unsafe impl Sync for Table {}

/// One entry for each GiB: devices, then RAM. The entry of RAM refers to `BLOCKS`; `switch_on` writes it, since the address
/// of `BLOCKS` is not known at compile time. All other entries are unmapped.
static GIBS: Table = Table(UnsafeCell::new(gibs()));
/// RAM in blocks of 2 MiB, with the layout of virt-aarch64.ld.
static BLOCKS: Table = Table(UnsafeCell::new(blocks()));

const fn gibs() -> [u64; 512] {
    let mut table = [0; 512];
    table[0] = DEVICE;
    table
}

const fn blocks() -> [u64; 512] {
    let mut table = [0; 512];
    table[1] = 0x4020_0000 | NORMAL | READ_ONLY; // code and constants
    table[2] = 0x4040_0000 | NORMAL | NO_EXECUTE; // data
    table[3] = 0x4060_0000 | NORMAL | NO_EXECUTE;
    // 0x4080_0000 stays unmapped: the guard block below the stack.
    table[5] = 0x40a0_0000 | NORMAL | NO_EXECUTE; // stack
    // The window to the host.
    let mut block = 16;
    while block < 24 {
        table[block] = 0x4000_0000 + ((block as u64) << 21) | NORMAL | NO_EXECUTE;
        block += 1;
    }
    table
}

/// Enables the MMU with this map.
///
/// The start-up code calls it once, while the MMU is off.
pub extern "C" fn switch_on() {
    // SAFETY: the only core writes one word of a table that nothing reads yet. The registers then describe 4 GiB of
    // addresses (T0SZ 32, 4 KiB granule, write-back, inner shareable) that map to themselves, so execution continues.
    unsafe {
        GIBS.0.get().cast::<u64>().add(1).write_volatile(BLOCKS.0.get() as u64 | TABLE);
        asm!(
            "dsb sy",
            "msr mair_el1, {mair}",
            "msr tcr_el1, {tcr}",
            "msr ttbr0_el1, {table}",
            "tlbi vmalle1",
            "ic iallu",
            "dsb sy",
            "isb",
            "mrs {control}, sctlr_el1",
            "orr {control}, {control}, {on}",
            "msr sctlr_el1, {control}",
            "isb",
            mair = in(reg) 0xff00_u64,
            tcr = in(reg) 32_u64 | 1 << 8 | 1 << 10 | 3 << 12 | 1 << 23,
            table = in(reg) GIBS.0.get() as u64,
            // Bits of SCTLR: MMU, data cache, instruction cache.
            on = in(reg) 1_u64 | 1 << 2 | 1 << 12,
            control = out(reg) _,
            options(nostack),
        );
    }
}
