//! What boards without an operating system share: a console over any UART, the emulator's semihosting services, stack
//! measurement, and the check that no panic is reachable.
#![no_std]

mod console;
// Programs with drivers that may panic have a handler of their own.
#[cfg(not(feature = "drivers"))]
mod panic;
pub mod semihosting;
pub mod stack;

pub use console::Console;

/// The exit status after an exception of the processor.
pub const EXCEPTION: u32 = 102;

/// The exit status after a panic in a driver.
pub const PANIC: u32 = 101;
