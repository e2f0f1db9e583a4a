//! What the machine as a DPU differs in from the other machine `virt`.

use virt::machine::Devices;

use crate::{Machine, gic, timer, uart};

// SAFETY: mmu.rs gives access to the memory of the window, and neither the linker script nor anything else uses it. The machine has
// its virtio devices there. Memory is mapped to its own address.
unsafe impl virt::Machine for Machine {
    /// 32 MiB after the begin of memory.
    const WINDOW: usize = 0x4200_0000;

    const DEVICES: Devices = Devices { base: 0x0a00_0000, step: 0x200, count: 32, interrupt: 48 };

    const UART_INTERRUPT: u32 = uart::INTERRUPT;

    fn enable(interrupt: u32) {
        gic::enable(interrupt);
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
    }
}
