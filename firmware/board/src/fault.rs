//! Handling of processor exceptions. Panics need no handling, since the link fails if one is reachable.

use core::fmt::Write;

use crate::semihosting;
use crate::uart::Uart;

/// The exit status after an exception.
const EXCEPTION: u32 = 102;

/// Prints the exception to the UART, and ends the program.
pub extern "C" fn exception(syndrome: u64, at: u64, address: u64) -> ! {
    let _ = writeln!(Uart::seize(), "exception: syndrome {syndrome:#x} at {at:#x}, address {address:#x}");
    semihosting::exit(EXCEPTION)
}

unsafe extern "C" {
    /// This function does not exist. Code that still refers to it after optimisation can panic.
    safe fn A_PANIC_IS_REACHABLE_IN_THE_FIRMWARE() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    A_PANIC_IS_REACHABLE_IN_THE_FIRMWARE()
}
