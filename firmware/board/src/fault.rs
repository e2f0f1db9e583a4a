//! When the processor faults. A panic is no such case: the link fails if one can be reached.

use core::fmt::Write;

use crate::semihosting;
use crate::uart::Uart;

/// The exit status after an exception.
const EXCEPTION: u32 = 102;

/// Tells what happened, and ends.
pub extern "C" fn exception(syndrome: u64, at: u64, address: u64) -> ! {
    let _ = writeln!(Uart::seize(), "exception: syndrome {syndrome:#x} at {at:#x}, address {address:#x}");
    semihosting::exit(EXCEPTION)
}

unsafe extern "C" {
    /// Exists nowhere: what still refers to it after optimisation can panic.
    safe fn A_PANIC_IS_REACHABLE_IN_THE_FIRMWARE() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    A_PANIC_IS_REACHABLE_IN_THE_FIRMWARE()
}
