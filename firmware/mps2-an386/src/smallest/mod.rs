//! What the program `serial-pair` needs of the board: the second UART, and which end of the line this board is.

mod jumper;
mod memory;
mod serial_line;

use cortex_m::interrupt::InterruptNumber;
use cortex_m_rt::exception;
use serial_pair::Wired;

use crate::Machine;
use serial_line::{Interrupt, SerialLine};

impl Wired for Machine {
    type Port = SerialLine;

    fn end() -> u8 {
        jumper::read()
    }

    fn port() -> Option<SerialLine> {
        SerialLine::take()
    }
}

/// All interrupts of the board. Only one is enabled.
#[exception]
unsafe fn DefaultHandler(number: i16) {
    if number == Interrupt.number() as i16 {
        Interrupt::handle();
    }
}
