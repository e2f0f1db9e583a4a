//! How deep the stack ever was. The start-up code paints it; what is used loses its paint.

use crate::start::UNUSED;

unsafe extern "C" {
    static __stack_bottom: u64;
    static __stack_top: u64;
}

/// Bytes of the stack.
pub fn size() -> usize {
    // Addresses from the linker script; nothing is read.
    (&raw const __stack_top as usize).wrapping_sub(&raw const __stack_bottom as usize)
}

/// The most bytes of the stack that were ever in use.
pub fn deepest() -> usize {
    let mut at = &raw const __stack_bottom;
    let top = &raw const __stack_top;
    // SAFETY: words of the stack; what the program writes there meanwhile lies above what is looked at last.
    while at < top && unsafe { at.read_volatile() } == UNUSED {
        at = at.wrapping_add(1);
    }
    (top as usize).wrapping_sub(at as usize)
}
