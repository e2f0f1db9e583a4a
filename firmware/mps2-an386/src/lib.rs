//! Arm's MPS2 board with FPGA image AN386, which has a Cortex-M4F: memory map, UART, timer. QEMU emulates it.
//!
//! A program links this crate and defines its entry point:
//!
//! ```ignore
//! #[unsafe(no_mangle)]
//! fn program() -> u32 {
//!     Machine::print(format_args!("hello\n"));
//!     0 // the exit status of the emulator
//! }
//! ```
#![no_std]

mod fault;
mod interrupts;
mod protection;
#[cfg(feature = "smallest")]
mod smallest;
mod start;
mod timer;
mod uart;

use core::ffi::CStr;
use core::fmt::Arguments;

use bare::semihosting::Channel;
use bare::{Console, stack};
use runtime::{Board, Stack};
use spin::Mutex;

static CONSOLE: Mutex<Console> = Mutex::new(Console::new(uart::put));

#[cfg(feature = "full")]
defmt::timestamp!("{=u64:us}", Machine::micros());

/// The machine.
#[derive(Debug)]
pub struct Machine;

impl Board for Machine {
    type Log = Channel;

    fn micros() -> u64 {
        timer::micros()
    }

    fn print(text: Arguments<'_>) {
        CONSOLE.lock().print(text);
    }

    fn open_log(name: &CStr) -> Option<Channel> {
        Channel::create(name)
    }

    fn stack() -> Option<Stack> {
        Some(stack::measure())
    }
}
