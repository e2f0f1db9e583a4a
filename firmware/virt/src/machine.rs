//! What the boards differ in.

use runtime::Board;

/// Where a machine has its virtio devices.
#[derive(Clone, Copy, Debug)]
pub struct Devices {
    /// The address of the first slot.
    pub base: usize,
    /// The distance of two slots.
    pub step: usize,
    /// Their number.
    pub count: usize,
    /// The interrupt of the first slot. The others follow.
    pub interrupt: u32,
}

/// A machine `virt` with one processor. Interrupts stay masked in the processor, so one that arrives only ends a sleep.
///
/// # Safety
/// The memory at [`WINDOW`](Self::WINDOW) is mapped to its own address, and nothing else uses it. The virtio devices are where
/// [`DEVICES`](Self::DEVICES) says, mapped to their own addresses.
pub unsafe trait Machine: Board {
    /// The address of the window.
    const WINDOW: usize;

    /// The virtio devices.
    const DEVICES: Devices;

    /// The interrupt of a byte that the UART has received.
    const UART_INTERRUPT: u32;

    /// Lets an interrupt end sleeps.
    fn enable(interrupt: u32);

    /// Sleeps for about that many microseconds, or until an interrupt that is enabled.
    fn sleep(micros: u64);

    /// Sends one byte by the UART.
    fn put(byte: u8);

    /// Lets a byte of the UART request an interrupt.
    fn listen();

    /// Takes the requests of the UART and of the interrupt controller back, after the other devices have taken back theirs. The bytes of
    /// the UART are dropped.
    fn take_back();
}
