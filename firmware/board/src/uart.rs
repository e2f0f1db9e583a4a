//! The PL011 UART, for text output.

use core::convert::Infallible;

use embedded_io::{ErrorType, Write};
use spin::Mutex;

/// Data register; the flag register is at 0x18.
const BASE: usize = 0x0900_0000;
const FLAGS: usize = BASE + 0x18;
const TRANSMIT_FULL: u32 = 1 << 5;

/// The machine's one UART.
pub static CONSOLE: Mutex<Uart> = Mutex::new(Uart { _private: () });

/// A PL011. It is ready to send after the machine's reset.
#[derive(Debug)]
pub struct Uart {
    _private: (),
}

impl Uart {
    /// The UART, even if the lock is held. For the message before the program ends.
    pub(crate) const fn seize() -> Self {
        Self { _private: () }
    }
}

impl ErrorType for Uart {
    type Error = Infallible;
}

impl Write for Uart {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        for byte in bytes {
            // SAFETY: the addresses are registers of the UART, mapped as Device memory. The lock of `CONSOLE` serialises its
            // users; a `Uart` from `seize` is used only when the program does not continue.
            unsafe {
                while (FLAGS as *const u32).read_volatile() & TRANSMIT_FULL != 0 {}
                (BASE as *mut u32).write_volatile(u32::from(*byte));
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl core::fmt::Write for Uart {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let Ok(_) = self.write(text.as_bytes());
        Ok(())
    }
}

/// Writes formatted text to the UART.
#[macro_export]
macro_rules! print {
    ($($argument:tt)*) => {{
        // Writing to the UART cannot fail.
        let _ = ::core::fmt::Write::write_fmt(&mut *$crate::CONSOLE.lock(), ::core::format_args!($($argument)*));
    }};
}
