//! The deepest use of the stack so far. The start-up code fills the stack with a pattern, which use overwrites.

use crate::start::UNUSED;

unsafe extern "C" {
    static __stack_bottom: u64;
    static __stack_top: u64;
}

/// Size of the stack in bytes.
pub fn size() -> usize {
    // The linker script defines these addresses. Nothing is read.
    (&raw const __stack_top as usize).wrapping_sub(&raw const __stack_bottom as usize)
}

/// The most bytes of the stack that were ever in use.
pub fn deepest() -> usize {
    let mut at = &raw const __stack_bottom;
    let top = &raw const __stack_top;
    // SAFETY: the addresses are words of the stack. The words that the program writes during this loop lie above the last
    // word that the loop reads.
    while at < top && unsafe { at.read_volatile() } == UNUSED {
        at = at.wrapping_add(1);
    }
    (top as usize).wrapping_sub(at as usize)
}
