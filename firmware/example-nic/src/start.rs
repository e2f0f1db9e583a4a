//! What runs between the start-up code of `cortex-m-rt`, which makes the static memory and calls [`start`], and the program.

use bare::{Console, EXCEPTION, semihosting};
// Linked for its implementation of `critical_section`.
use cortex_m as _;
use cortex_m_rt::{ExceptionFrame, entry, exception};
use towline_window::fault::{Exception, Fault};

use crate::{card, devices};

unsafe extern "Rust" {
    /// The program. It returns the exit status; that of a DPU only if it cannot start.
    safe fn program() -> u32;
}

#[entry]
fn start() -> ! {
    devices::start();
    // The end of the emulator. A card without a debugger would restart.
    semihosting::exit(program())
}

/// Tells the host, and prints, where the processor took an exception.
#[exception]
unsafe fn HardFault(frame: &ExceptionFrame) -> ! {
    let (cause, address) = devices::fault();
    let exception = Exception { cause, instruction: frame.pc().into(), address };
    card::fail(&Fault { number: EXCEPTION, exception: Some(exception) });
    Console::new(devices::put_text).print(format_args!("exception at {:#x}\n", frame.pc()));
    semihosting::exit(EXCEPTION)
}
