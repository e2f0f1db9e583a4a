//! QEMU's `virt` machine with a 64-bit Arm core, like those of a DPU: start-up, memory map, UART, counter.
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
mod gic;
mod interrupts;
mod mmu;
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

defmt::timestamp!("{=u64:us}", Machine::micros());

/// The machine.
#[derive(Debug)]
pub struct Machine;

impl Board for Machine {
    type Log = Channel;

    fn micros() -> u64 {
        let (ticks, hz): (u64, u64);
        // SAFETY: this reads a counter register and a constant register.
        unsafe {
            core::arch::asm!("isb", "mrs {}, cntvct_el0", "mrs {}, cntfrq_el0", out(reg) ticks, out(reg) hz, options(nostack));
        }
        ticks.wrapping_mul(1_000_000).checked_div(hz).unwrap_or(0)
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
