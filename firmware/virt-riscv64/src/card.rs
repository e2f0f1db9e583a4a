//! What the machine as a DPU differs in from the other machine `virt`.

use virt::machine::Devices;

use crate::{Machine, plic, timer, uart};

// SAFETY: protection.rs gives access to the memory of the window, and neither the linker script nor anything else uses it. The machine has
// its virtio devices there. Memory is mapped to its own address.
unsafe impl virt::Machine for Machine {
    /// 32 MiB after the begin of memory.
    const WINDOW: usize = 0x8200_0000;

    const DEVICES: Devices = Devices { base: 0x1000_1000, step: 0x1000, count: 8, interrupt: 1 };

    const UART_INTERRUPT: u32 = uart::INTERRUPT;

    fn enable(interrupt: u32) {
        plic::enable(interrupt);
    }

    fn sleep(micros: u64) {
        timer::sleep(micros);
    }

    fn put(byte: u8) {
        uart::put(byte);
    }

    fn listen() {
        uart::listen();
    }

    fn take_back() {
        uart::drop_received();
        plic::take_back();
        // The request of a byte that has arrived meanwhile may be among those that were taken back.
        uart::drop_received();
    }
}
