//! The deepest use of the stack so far. The start-up code fills the stack with a pattern, which use overwrites.

use runtime::Stack;

/// The initial value of every word of the stack. A word that still has it was never used. The start-up code of `cortex-m-rt`
/// uses the same value.
pub const UNUSED: usize = 0xcccc_cccc_cccc_cccc_u64 as usize;

unsafe extern "C" {
    static __stack_bottom: usize;
    static __stack_top: usize;
}

/// How much of the stack was used. The linker script defines where the stack is.
pub fn measure() -> Stack {
    let bottom = &raw const __stack_bottom;
    let top = &raw const __stack_top;
    let mut at = bottom;
    // SAFETY: the addresses are words of the stack. The words that the program writes during this loop lie above the last
    // word that the loop reads.
    while at < top && unsafe { at.read_volatile() } == UNUSED {
        at = at.wrapping_add(1);
    }
    Stack { deepest: (top as usize).wrapping_sub(at as usize), size: (top as usize).wrapping_sub(bottom as usize) }
}
