//! The interface to the board.

use core::ffi::CStr;
use core::fmt::Arguments;

use embedded_io::Write;

/// What a machine provides to a program. A program runs on one machine, so these are functions without a receiver. Each
/// may be called by any thread, but only [`micros`](Self::micros) by an interrupt handler, since a log line reads the time.
pub trait Board {
    /// A stream of bytes to the host, which is separate from the text.
    type Log: Write;

    /// Microseconds since a fixed moment before the program started.
    fn micros() -> u64;

    /// Writes text to the console. Text that the console refuses is lost.
    fn print(text: Arguments<'_>);

    /// Creates a stream of bytes that the host stores under this name. Returns `None` if the host refuses.
    fn open_log(name: &CStr) -> Option<Self::Log>;

    /// How much of the stack was used. Returns `None` where an operating system manages the stack.
    fn stack() -> Option<Stack>;
}

/// Use of the stack, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    /// The most that was ever in use.
    pub deepest: usize,
    /// Its size.
    pub size: usize,
}
