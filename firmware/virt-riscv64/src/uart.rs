//! The 16550 UART, for text output.

/// Transmit register; the line status register is at 5.
const BASE: usize = 0x1000_0000;
const LINE_STATUS: usize = BASE + 5;
const TRANSMIT_EMPTY: u8 = 1 << 5;

/// Sends one byte, after waiting until the UART has room for it. The UART is ready to send after the machine's reset.
pub fn put(byte: u8) {
    // SAFETY: the addresses are registers of the UART. Bytes of callers that run at the same time may be mixed, which does no
    // harm.
    unsafe {
        while (LINE_STATUS as *const u8).read_volatile() & TRANSMIT_EMPTY == 0 {}
        (BASE as *mut u8).write_volatile(byte);
    }
}
