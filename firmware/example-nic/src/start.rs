//! What runs between the start-up code of `cortex-m-rt`, which makes the static memory and calls [`start`], and the program.

use bare::Console;
use cortex_m::asm;
use cortex_m_rt::{ExceptionFrame, entry, exception};

use crate::devices;

unsafe extern "Rust" {
    /// The program. It returns only if it cannot start.
    safe fn program() -> u32;
}

#[entry]
fn start() -> ! {
    devices::start();
    program();
    loop {
        asm::wfi();
    }
}

/// Prints where the processor took an exception, and stops.
#[exception]
unsafe fn HardFault(frame: &ExceptionFrame) -> ! {
    Console::new(devices::put_text).print(format_args!("exception at {:#x}\n", frame.pc()));
    loop {
        asm::wfi();
    }
}
