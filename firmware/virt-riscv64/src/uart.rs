//! The 16550 UART: text output, and bytes of the host, which only wake the processor.

/// Data register; registers with enabled interrupts and with the status of the line.
const BASE: usize = 0x1000_0000;
const INTERRUPTS: usize = BASE + 1;
const LINE_STATUS: usize = BASE + 5;
const TRANSMIT_EMPTY: u8 = 1 << 5;
/// A byte was received: in the status of the line, and among the interrupts.
const RECEIVED: u8 = 1;
/// Most bytes that are dropped at once.
const BYTES: u32 = 64;

/// The interrupt of a byte that was received.
pub const INTERRUPT: u32 = 10;

/// Sends one byte, after waiting until the UART has room for it. The UART is ready to send after the machine's reset.
pub fn put(byte: u8) {
    // SAFETY: the addresses are registers of the UART. Bytes of callers that run at the same time may be mixed, which does no
    // harm.
    unsafe {
        while (LINE_STATUS as *const u8).read_volatile() & TRANSMIT_EMPTY == 0 {}
        (BASE as *mut u8).write_volatile(byte);
    }
}

/// Lets a byte of the host request an interrupt.
pub fn listen() {
    // SAFETY: as in `put`.
    unsafe { (INTERRUPTS as *mut u8).write_volatile(RECEIVED) };
}

/// Drops the bytes of the host, which takes the interrupt back.
pub fn drop_received() {
    for _ in 0..BYTES {
        // SAFETY: as in `put`.
        unsafe {
            if (LINE_STATUS as *const u8).read_volatile() & RECEIVED == 0 {
                return;
            }
            let _ = (BASE as *const u8).read_volatile();
        }
    }
}
