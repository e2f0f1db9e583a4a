//! What runs between the start-up code of `cortex-m-rt` and the program.

use bare::semihosting;
use cortex_m::Peripherals;
use cortex_m_rt::{entry, exception};

use crate::{protection, timer, uart};

unsafe extern "Rust" {
    /// The program's entry point. It returns the exit status.
    safe fn program() -> u32;
}

#[entry]
fn start() -> ! {
    uart::TEXT.start(0);
    if let Some(mut peripherals) = Peripherals::take() {
        protection::switch_on(&mut peripherals.MPU);
        timer::start(&mut peripherals.SYST);
    }
    semihosting::exit(program())
}

#[exception]
fn SysTick() {
    timer::next_period();
}
