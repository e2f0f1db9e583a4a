//! Exceptions of the processor, and panics in drivers: the ends of a program that cannot go on. Each is reported to the host and to the UART.
//! The lock of the console may be held, so it is not used. The host comes first, since printing may fail as the program did.

use core::fmt::Arguments;
#[cfg(feature = "network")]
use core::panic::PanicInfo;

#[cfg(feature = "network")]
use bare::PANIC;
use bare::{Console, EXCEPTION, semihosting};
use towline_window::fault::{Exception, Fault};

use crate::machine::Machine;
use crate::window;

/// Ends the program after an exception.
pub fn exception<M: Machine>(exception: Exception) -> ! {
    let Exception { cause, instruction, address } = exception;
    end::<M>(
        &Fault { number: EXCEPTION, exception: Some(exception) },
        format_args!("exception: cause {cause:#x} at {instruction:#x}, address {address:#x}"),
    )
}

/// Ends the program after a panic in a driver of another project.
#[cfg(feature = "network")]
#[inline(never)] // its name stays in the program, and a test finds it
pub fn panicked<M: Machine>(info: &PanicInfo<'_>) -> ! {
    end::<M>(&Fault { number: PANIC, exception: None }, format_args!("{info}"))
}

fn end<M: Machine>(fault: &Fault, text: Arguments<'_>) -> ! {
    window::fail::<M>(fault);
    Console::new(M::put).print(format_args!("{text}\n"));
    semihosting::exit(fault.number)
}
