//! The CMSDK APB UART. The board has several: the first is for text. `receiver` has the part that receives.

#[cfg(feature = "smallest")]
pub mod receiver;

/// Offsets of registers. The data register is the first.
const STATE: usize = 0x4;
const CONTROL: usize = 0x8;
const BAUD_DIVISOR: usize = 0x10;
/// The bit of the state that says that there is no room.
const TRANSMIT_FULL: u32 = 1;
/// The bit of the control register that enables the transmitter.
const TRANSMIT: u32 = 1;
/// The smallest divisor: 25 MHz / 16.
const FASTEST: u32 = 16;

/// A UART.
#[derive(Clone, Copy, Debug)]
pub struct Uart {
    base: usize,
}

/// The UART for text.
pub const TEXT: Uart = Uart::at(0x4000_4000);

impl Uart {
    /// The UART with its registers at an address of the board.
    pub const fn at(base: usize) -> Self {
        Self { base }
    }

    fn read(self, register: usize) -> u32 {
        // SAFETY: this module has the addresses of UARTs and of their registers only.
        unsafe { (self.base.wrapping_add(register) as *const u32).read_volatile() }
    }

    fn write(self, register: usize, value: u32) {
        // SAFETY: as above. Bytes of callers that run at the same time may be mixed, which does no harm.
        unsafe { (self.base.wrapping_add(register) as *mut u32).write_volatile(value) }
    }

    /// Enables the transmitter, and what else `control` has.
    pub fn start(self, control: u32) {
        self.write(BAUD_DIVISOR, FASTEST);
        self.write(CONTROL, TRANSMIT | control);
    }

    /// Whether there is room for a byte.
    pub fn has_room(self) -> bool {
        self.read(STATE) & TRANSMIT_FULL == 0
    }

    /// Sends one byte, after waiting until the UART has room for it.
    pub fn put(self, byte: u8) {
        while !self.has_room() {}
        self.write(0, byte.into());
    }
}

/// Sends one byte of text.
pub fn put(byte: u8) {
    TEXT.put(byte);
}
