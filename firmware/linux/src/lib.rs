//! The firmware as a static program for Linux, which the Arm cores of most DPUs run. Tests use it at native speed.

pub mod card;
pub mod doorbell;

use std::ffi::CStr;
use std::fmt::Arguments;
use std::fs::File;
use std::io::{self, Write};
use std::sync::LazyLock;
use std::time::Instant;

use runtime::{Board, Stack};

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

defmt::timestamp!("{=u64:us}", Machine::micros());

/// The process.
#[derive(Debug)]
pub struct Machine;

impl Board for Machine {
    type Log = Log;

    fn micros() -> u64 {
        u64::try_from(START.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn print(text: Arguments<'_>) {
        // Text to a closed pipe is lost.
        let _ = io::stdout().write_fmt(text);
    }

    fn open_log(name: &CStr) -> Option<Log> {
        Some(Log(File::create(name.to_str().ok()?).ok()?))
    }

    fn stack() -> Option<Stack> {
        None
    }
}

/// A file.
#[derive(Debug)]
pub struct Log(File);

impl embedded_io::ErrorType for Log {
    type Error = embedded_io::ErrorKind;
}

impl embedded_io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, embedded_io::ErrorKind> {
        self.0.write(bytes).map_err(|error| error.kind().into())
    }

    fn flush(&mut self) -> Result<(), embedded_io::ErrorKind> {
        self.0.flush().map_err(|error| error.kind().into())
    }
}
