//! Handling of processor exceptions.

use bare::{Console, EXCEPTION, semihosting};

use crate::uart;

/// Prints the exception to the UART, and ends the program. The lock of the console may be held, so it is not used.
pub extern "C" fn exception(cause: u64, at: u64, address: u64) -> ! {
    Console::new(uart::put).print(format_args!("exception: cause {cause:#x} at {at:#x}, address {address:#x}\n"));
    semihosting::exit(EXCEPTION)
}
