//! The check that no panic is reachable.

unsafe extern "C" {
    /// This function does not exist. Code that still refers to it after optimisation can panic.
    safe fn A_PANIC_IS_REACHABLE_IN_THE_FIRMWARE() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    A_PANIC_IS_REACHABLE_IN_THE_FIRMWARE()
}
