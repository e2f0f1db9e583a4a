//! Handling of processor exceptions.

use core::arch::global_asm;

use bare::{Console, EXCEPTION, semihosting};
use cortex_m::peripheral::SCB;

use crate::uart;

/// The bit of the fault status that says that the address of a protection fault is known.
const MEMORY_ADDRESS_VALID: u32 = 1 << 7;

// The vector table of cortex-m-rt names this symbol. The stack may have caused the fault, so it starts again at its top.
global_asm!(
    r#"
    .section .text.HardFault, "ax"
    .global HardFault
    .type HardFault, %function
    .thumb_func
HardFault:
    ldr  r0, =__stack_top
    msr  msp, r0
    b    {fault}
    "#,
    fault = sym exception,
);

/// Prints the exception to the UART, and ends the program. The lock of the console may be held, so it is not used.
extern "C" fn exception() -> ! {
    // SAFETY: these are reads of registers, without an effect on them.
    let (syndrome, memory, bus) =
        unsafe { ((*SCB::PTR).cfsr.read(), (*SCB::PTR).mmfar.read(), (*SCB::PTR).bfar.read()) };
    let address = if syndrome & MEMORY_ADDRESS_VALID == 0 { bus } else { memory };
    Console::new(uart::put).print(format_args!("exception: syndrome {syndrome:#x}, address {address:#x}\n"));
    semihosting::exit(EXCEPTION)
}
