//! The check that no panic is reachable. Not with feature `drivers`: then the program has a handler of its own.

#[cfg(not(feature = "drivers"))]
unsafe extern "C" {
    /// This function does not exist. Code that still refers to it after optimisation can panic.
    safe fn A_PANIC_IS_REACHABLE_IN_THE_FIRMWARE() -> !;
}

#[cfg(not(feature = "drivers"))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    A_PANIC_IS_REACHABLE_IN_THE_FIRMWARE()
}
