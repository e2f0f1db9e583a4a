//! The interrupts of the board in the vector table. Without this table there would be 240 of them, in a kilobyte of flash.

unsafe extern "C" {
    /// The start-up code's handler of all interrupts that have none.
    fn DefaultHandler();
}

/// The handlers of the 32 interrupts. `cortex-m-rt` puts them behind those of the processor's exceptions.
// SAFETY: the linker script of `cortex-m-rt` has a section of this name, and expects a static of this name in it.
#[unsafe(link_section = ".vector_table.interrupts")]
#[unsafe(no_mangle)]
static __INTERRUPTS: [unsafe extern "C" fn(); 32] = [DefaultHandler; 32];
