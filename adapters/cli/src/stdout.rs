//! Prints to standard output. The reader may close it early, as in `towline info | head -1`.

use std::io::{ErrorKind, Write as _, stdout};
use std::process::exit;

/// Prints to standard output. Unlike `print!`, it does not panic if the reader has closed it.
macro_rules! out {
    ($($text:tt)*) => { $crate::stdout::print(format_args!($($text)*)) };
}

pub(crate) use out;

/// Prints. If the reader has closed standard output, ends the process with the status that a shell reports for a
/// process killed by SIGPIPE.
pub fn print(text: std::fmt::Arguments) {
    let Err(why) = stdout().write_fmt(text).and_then(|()| stdout().flush()) else { return };
    if why.kind() != ErrorKind::BrokenPipe {
        eprintln!("towline: cannot write to standard output: {why}{}", towline_net::advice(&why));
    }
    exit(if why.kind() == ErrorKind::BrokenPipe { 128 + rustix::process::Signal::PIPE.as_raw() } else { 1 });
}
