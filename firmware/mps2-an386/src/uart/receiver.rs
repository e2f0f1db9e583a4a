//! The receiver of a UART, which the program over a serial line alone uses.

use super::{STATE, Uart};

/// Offset of the register of interrupts.
const INTERRUPT: usize = 0xc;
/// Bits of the state.
const RECEIVE_FULL: u32 = 1 << 1;
const OVERRUN: u32 = 1 << 3;
/// The bit that clears the interrupt of the receiver.
const RECEIVED: u32 = 1 << 1;
/// The bits of the control register that enable the receiver and its interrupt.
pub const ENABLE: u32 = 1 << 1 | 1 << 3;

impl Uart {
    /// Clears the interrupt of the receiver.
    pub fn clear_interrupt(self) {
        self.write(INTERRUPT, RECEIVED);
    }

    /// The byte that has arrived.
    pub fn received(self) -> Option<u8> {
        (self.read(STATE) & RECEIVE_FULL != 0).then(|| self.read(0) as u8)
    }

    /// Whether a byte was lost since the last call.
    pub fn take_overrun(self) -> bool {
        let overrun = self.read(STATE) & OVERRUN != 0;
        if overrun {
            self.write(STATE, OVERRUN);
        }
        overrun
    }
}
