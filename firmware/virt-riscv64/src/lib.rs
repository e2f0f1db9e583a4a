//! QEMU's `virt` machine with a 64-bit RISC-V core: start-up, memory protection, UART, counter.
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

mod card;
mod fault;
mod interrupts;
mod plic;
mod protection;
mod start;
mod timer;
mod uart;

use core::ffi::CStr;
use core::fmt::Arguments;

use bare::semihosting::Channel;
use bare::{Console, stack};
use runtime::{Board, Stack};
use spin::Mutex;

/// The machine's counter runs at 10 MHz.
const TICKS_PER_MICROSECOND: u64 = 10;

static CONSOLE: Mutex<Console> = Mutex::new(Console::new(uart::put));

defmt::timestamp!("{=u64:us}", Machine::micros());

/// The machine.
#[derive(Debug)]
pub struct Machine;

impl Board for Machine {
    type Log = Channel;

    fn micros() -> u64 {
        let ticks: u64;
        // SAFETY: this reads a counter register.
        unsafe { core::arch::asm!("rdtime {}", out(reg) ticks, options(nomem, nostack)) };
        ticks / TICKS_PER_MICROSECOND
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
