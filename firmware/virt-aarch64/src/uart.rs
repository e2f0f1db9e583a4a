//! The PL011 UART: text output, and bytes of the host, which only wake the processor.

/// Data register; registers with flags, switches, enabled interrupts, and interrupts to take back.
const BASE: usize = 0x0900_0000;
const FLAGS: usize = BASE + 0x18;
const CONTROL: usize = BASE + 0x30;
const INTERRUPTS: usize = BASE + 0x38;
const TAKE_BACK: usize = BASE + 0x44;
const TRANSMIT_FULL: u32 = 1 << 5;
const RECEIVE_EMPTY: u32 = 1 << 4;
/// The UART is on, sends and receives.
const ON: u32 = 1 | 1 << 8 | 1 << 9;
/// A byte was received, and one was received some time ago.
const RECEIVED: u32 = 1 << 4 | 1 << 6;
/// Most bytes that are dropped at once.
const BYTES: u32 = 64;

/// The interrupt of a byte that was received.
pub const INTERRUPT: u32 = 33;

/// Sends one byte, after waiting until the UART has room for it. The UART is ready to send after the machine's reset.
pub fn put(byte: u8) {
    // SAFETY: the addresses are registers of the UART, mapped as Device memory. Bytes of callers that run at the same time
    // may be mixed, which does no harm.
    unsafe {
        while (FLAGS as *const u32).read_volatile() & TRANSMIT_FULL != 0 {}
        (BASE as *mut u32).write_volatile(u32::from(byte));
    }
}

/// Lets a byte of the host request an interrupt.
pub fn listen() {
    // SAFETY: as in `put`.
    unsafe {
        (CONTROL as *mut u32).write_volatile(ON);
        (INTERRUPTS as *mut u32).write_volatile(RECEIVED);
    }
}

/// Drops the bytes of the host, which takes the interrupt back.
pub fn drop_received() {
    // SAFETY: as in `put`.
    unsafe {
        // First, so that a byte that arrives from now on requests the interrupt again.
        (TAKE_BACK as *mut u32).write_volatile(RECEIVED);
        for _ in 0..BYTES {
            if (FLAGS as *const u32).read_volatile() & RECEIVE_EMPTY != 0 {
                return;
            }
            let _ = (BASE as *const u32).read_volatile();
        }
    }
}
