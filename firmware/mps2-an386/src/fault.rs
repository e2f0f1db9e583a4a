//! Handling of processor exceptions.

use core::arch::global_asm;

use bare::{EXCEPTION, semihosting};
use cortex_m::peripheral::SCB;

use crate::uart;

/// The bit of the fault status that says that the address of a protection fault is known.
const MEMORY_ADDRESS_VALID: u32 = 1 << 7;

/// Whether an exception is printed on the UART. The smallest programs end with the exit status alone.
const TEXT: bool = cfg!(feature = "full");

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
    if TEXT {
        text("exception: syndrome 0x");
        hexadecimal(syndrome);
        text(", address 0x");
        hexadecimal(address);
        text("\n");
    }
    semihosting::exit(EXCEPTION)
}

fn text(text: &str) {
    text.bytes().for_each(uart::put);
}

/// Prints a number. The formatting of the standard library is larger than some programs.
fn hexadecimal(number: u32) {
    for shift in (0..8).rev() {
        let digit = (number >> (shift * 4)) as u8 & 0xf;
        uart::put(if digit < 10 { b'0' + digit } else { b'a' - 10 + digit });
    }
}
