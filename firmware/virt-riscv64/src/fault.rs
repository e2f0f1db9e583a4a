//! Handling of processor exceptions, and of panics in drivers.

use bare::{Console, EXCEPTION, semihosting};
use towline_window::fault::{Exception, Fault};
use virt::window;

use crate::{Machine, uart};

/// Reports the exception to the host and to the UART, and ends the program. The lock of the console may be held, so it is not used.
pub extern "C" fn exception(cause: u64, at: u64, address: u64) -> ! {
    let exception = Exception { cause, instruction: at, address };
    window::fail::<Machine>(&Fault { number: EXCEPTION, exception: Some(exception) });
    Console::new(uart::put).print(format_args!("exception: cause {cause:#x} at {at:#x}, address {address:#x}\n"));
    semihosting::exit(EXCEPTION)
}

/// Without a network no panic is reachable, which `bare` checks.
#[cfg(feature = "network")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    virt::panic::panicked::<Machine>(info)
}
