//! Links only if no panic can be reached from the core's functions.
//!
//! The panic handler calls a function that does not exist. Whatever the optimiser can prove unreachable is gone before
//! the linker looks for it; what is left makes the link fail with the function's name.
#![no_std]
#![no_main]

unsafe extern "C" {
    /// Exists nowhere. It takes the information so that what panics, and where, can be looked up.
    safe fn A_PANIC_IS_REACHABLE_IN_THE_CORE(info: *const ()) -> !;
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    A_PANIC_IS_REACHABLE_IN_THE_CORE((&raw const *info).cast())
}

/// Where the linker starts. Never run.
#[unsafe(no_mangle)]
extern "C" fn _start() -> ! {
    towline_panic_check::reach();
    #[cfg(feature = "bad")]
    towline_panic_check::keep(towline_panic_check::bytes(&mut [0; 16])[towline_panic_check::any(3)]);
    loop {
        core::hint::spin_loop();
    }
}
