//! Registers of the UARTs, the timer and the processor.

use core::cell::Cell;

use critical_section::Mutex;

/// The UARTs: one for text, and one for the log.
const TEXT: usize = 0x4000_4000;
const LOG: usize = 0x4000_5000;
/// Offsets of the registers of a UART, whose first one is that of data, and bits of them.
const STATE: usize = 0x4;
const FULL: u32 = 1;
const CONTROL: usize = 0x8;
const TRANSMIT: u32 = 1;
const BAUD_DIVISOR: usize = 0x10;
/// A counter of 32 bits, and by how many ticks of 25 MHz less one it counts.
const COUNTER: usize = 0x4002_8018;
const PRESCALE: usize = 0x4002_801c;

/// What the processor says of a fault: of any, of the kind, and the address that was accessed.
const HARD_FAULT: usize = 0xe000_ed2c;
const FAULT: usize = 0xe000_ed28;
const FAULT_ADDRESS: usize = 0xe000_ed38;

fn read(register: usize) -> u32 {
    // SAFETY: this module has the addresses of registers only.
    unsafe { (register as *const u32).read_volatile() }
}

fn write(register: usize, value: u32) {
    // SAFETY: as above.
    unsafe { (register as *mut u32).write_volatile(value) }
}

/// Enables the devices. The start-up code calls it before anything else.
pub fn start() {
    write(PRESCALE, 24);
    for uart in [TEXT, LOG] {
        write(uart + BAUD_DIVISOR, 16);
        write(uart + CONTROL, TRANSMIT);
    }
}

fn put(uart: usize, byte: u8) {
    while read(uart + STATE) & FULL != 0 {}
    write(uart, byte.into());
}

/// Sends a byte of text.
pub fn put_text(byte: u8) {
    put(TEXT, byte);
}

/// Sends a byte of the log.
pub fn put_log(byte: u8) {
    put(LOG, byte);
}

/// Microseconds since [`start`]. The counter begins anew after 71 minutes, so this has to be called more often.
pub fn micros() -> u64 {
    static LAST: Mutex<Cell<u64>> = Mutex::new(Cell::new(0));
    // A log line in an interrupt handler reads the time, too.
    critical_section::with(|section| {
        let last = LAST.borrow(section);
        let passed = read(COUNTER).wrapping_sub(last.get() as u32);
        last.set(last.get().wrapping_add(passed.into()));
        last.get()
    })
}

/// The cause of a fault, which is not 0, and the address that was accessed, if it was one of data.
pub fn fault() -> (u64, u64) {
    let cause = u64::from(read(HARD_FAULT)) << 32 | u64::from(read(FAULT));
    (cause, read(FAULT_ADDRESS).into())
}
