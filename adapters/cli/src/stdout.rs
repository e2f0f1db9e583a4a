//! Standard output of the subcommands, whose reader may go before they are through: `towline info | head -1`.

use std::io::{ErrorKind, Write as _, stdout};
use std::process::exit;

/// Prints to standard output, as `print!` does, which panics where nobody reads any more.
macro_rules! out {
    ($($text:tt)*) => { $crate::stdout::print(format_args!($($text)*)) };
}

pub(crate) use out;

/// Ends the process, with the status that a shell gives one that SIGPIPE has killed, if the reader is gone.
pub fn print(text: std::fmt::Arguments) {
    let Err(why) = stdout().write_fmt(text).and_then(|()| stdout().flush()) else { return };
    if why.kind() != ErrorKind::BrokenPipe {
        eprintln!("towline: cannot write to standard output: {why}");
    }
    exit(if why.kind() == ErrorKind::BrokenPipe { 128 + rustix::process::Signal::PIPE.as_raw() } else { 1 });
}
