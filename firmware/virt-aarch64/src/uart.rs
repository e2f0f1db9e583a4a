//! The PL011 UART, for text output.

/// Data register; the flag register is at 0x18.
const BASE: usize = 0x0900_0000;
const FLAGS: usize = BASE + 0x18;
const TRANSMIT_FULL: u32 = 1 << 5;

/// Sends one byte, after waiting until the UART has room for it. The UART is ready to send after the machine's reset.
pub fn put(byte: u8) {
    // SAFETY: the addresses are registers of the UART, mapped as Device memory. Bytes of callers that run at the same time
    // may be mixed, which does no harm.
    unsafe {
        while (FLAGS as *const u32).read_volatile() & TRANSMIT_FULL != 0 {}
        (BASE as *mut u32).write_volatile(u32::from(byte));
    }
}
