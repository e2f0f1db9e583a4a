//! Links only if no panic is reachable from the core's functions.
//!
//! The panic handler calls a function that does not exist. The optimiser removes all code that it can prove unreachable.
//! If a call of the panic handler is left, the link fails with the name of that function.
#![no_std]
#![no_main]

unsafe extern "C" {
    /// This function does not exist. Its argument keeps the panic's source location in the program, which the script
    /// `panic-check` prints.
    safe fn A_PANIC_IS_REACHABLE_IN_THE_CORE(info: *const ()) -> !;
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    A_PANIC_IS_REACHABLE_IN_THE_CORE((&raw const *info).cast())
}

/// The program's entry point for the linker. The program is never run.
#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    towline_panic_check::reach();
    #[cfg(feature = "bad")]
    towline_panic_check::keep(towline_panic_check::bytes(&mut [0; 16])[towline_panic_check::any(3)]);
    loop {
        core::hint::spin_loop();
    }
}
