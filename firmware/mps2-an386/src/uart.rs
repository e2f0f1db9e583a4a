//! The CMSDK APB UART. The board has several: the first is for text.

/// Offsets of registers. The data register is the first.
const STATE: usize = 0x4;
const CONTROL: usize = 0x8;
const INTERRUPT: usize = 0xc;
const BAUD_DIVISOR: usize = 0x10;
/// Bits of the state.
const TRANSMIT_FULL: u32 = 1;
const RECEIVE_FULL: u32 = 1 << 1;
const OVERRUN: u32 = 1 << 3;
/// Bits of the control register: the transmitter, and the receiver with its interrupt.
const TRANSMIT: u32 = 1;
pub const RECEIVE: u32 = 1 << 1 | 1 << 3;
/// The bit that clears the interrupt of the receiver.
const RECEIVED: u32 = 1 << 1;
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

/// Sends one byte of text.
pub fn put(byte: u8) {
    TEXT.put(byte);
}
