//! The card as a board: console, time, log and stack.

use core::ffi::CStr;
use core::fmt::Arguments;

use bare::{Console, stack};
use runtime::{Board, Stack};

use crate::devices;

defmt::timestamp!("{=u64:us}", Nic::micros());

/// The card.
#[derive(Debug)]
pub struct Nic;

impl Board for Nic {
    type Log = Console;

    fn micros() -> u64 {
        devices::micros()
    }

    fn print(text: Arguments<'_>) {
        Console::new(devices::put_text).print(text);
    }

    /// The second UART carries the log.
    fn open_log(_: &CStr) -> Option<Console> {
        Some(Console::new(devices::put_log))
    }

    fn stack() -> Option<Stack> {
        Some(stack::measure())
    }
}
