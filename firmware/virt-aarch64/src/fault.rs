//! The handlers of processor exceptions and, with a network, of panics in its driver.

use towline_window::fault::Exception;
use virt::fault;

use crate::Machine;

/// The processor has taken an exception.
pub extern "C" fn exception(syndrome: u64, at: u64, address: u64) -> ! {
    fault::exception::<Machine>(Exception { cause: syndrome, instruction: at, address })
}

/// Without a network no panic is reachable, which `bare` checks.
#[cfg(feature = "network")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    fault::panicked::<Machine>(info)
}
