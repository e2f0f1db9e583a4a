//! A panic in a driver of another project.

use core::panic::PanicInfo;

use bare::{Console, PANIC, semihosting};
use towline_window::fault::Fault;

use crate::machine::Machine;
use crate::window;

/// Reports the panic to the host and to the UART, and ends the program. The lock of the console may be held, so it is not used. The host
/// comes first, since text of a driver may fail as the driver did.
#[inline(never)] // its name stays in the program, and a test finds it
pub fn panicked<M: Machine>(info: &PanicInfo<'_>) -> ! {
    window::fail::<M>(&Fault { number: PANIC, exception: None });
    Console::new(M::put).print(format_args!("{info}\n"));
    semihosting::exit(PANIC)
}
