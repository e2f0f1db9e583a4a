//! Text output over any UART.

use core::convert::Infallible;
use core::fmt::Arguments;

use embedded_io::{ErrorType, Write};

/// A UART as a stream of bytes and of text.
#[derive(Debug)]
pub struct Console {
    /// Sends one byte, after waiting until the device has room for it.
    put: fn(u8),
}

impl Console {
    /// A console that sends bytes by this function.
    pub const fn new(put: fn(u8)) -> Self {
        Self { put }
    }

    /// Sends text.
    pub fn print(&mut self, text: Arguments<'_>) {
        // Sending cannot fail.
        let _ = core::fmt::Write::write_fmt(self, text);
    }
}

impl ErrorType for Console {
    type Error = Infallible;
}

impl Write for Console {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        bytes.iter().for_each(|byte| (self.put)(*byte));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl core::fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        text.bytes().for_each(self.put);
        Ok(())
    }
}
