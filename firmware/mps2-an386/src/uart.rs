//! The CMSDK APB UART, for text output.

/// Data register.
const BASE: usize = 0x4000_4000;
const STATE: usize = BASE + 0x4;
const CONTROL: usize = BASE + 0x8;
const BAUD_DIVISOR: usize = BASE + 0x10;
const TRANSMIT_FULL: u32 = 1;
const TRANSMIT_ENABLED: u32 = 1;
/// The smallest divisor: 25 MHz / 16.
const FASTEST: u32 = 16;

/// Enables the transmitter.
pub fn start() {
    // SAFETY: the addresses are registers of the UART.
    unsafe {
        (BAUD_DIVISOR as *mut u32).write_volatile(FASTEST);
        (CONTROL as *mut u32).write_volatile(TRANSMIT_ENABLED);
    }
}

/// Sends one byte, after waiting until the UART has room for it.
pub fn put(byte: u8) {
    // SAFETY: the addresses are registers of the UART. Bytes of callers that run at the same time may be mixed, which does no
    // harm.
    unsafe {
        while (STATE as *const u32).read_volatile() & TRANSMIT_FULL != 0 {}
        (BASE as *mut u32).write_volatile(u32::from(byte));
    }
}
