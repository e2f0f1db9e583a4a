//! The smallest reliable two-sided configuration: one serial line, 2 peers, 1 communicator, 8 posted receives, 8 unexpected messages of
//! 64 bytes, and frames of 256 bytes. The program is one end of the line. It exchanges messages of all kinds with the other end, which
//! runs the same program, and checks every byte.
//!
//! With the feature `all`, the core has all of its parts, which shows what they take.
//!
//! It uses no formatted text and no log, so that what it takes is what the core takes. Its report is a text file on the host.
#![no_std]

mod end;
mod error;
mod exchange;
mod report;

use runtime::{Block, Board, Report};

use end::End;
pub use error::Failed;
use exchange::Exchange;

/// Bytes of static memory for all tables: those of the engine, the link, the rail and the line.
const TABLES: usize = if cfg!(feature = "all") { 9_472 } else { 7_640 };

static MEMORY: Block<{ TABLES / 8 }> = Block::new();
static MESSAGES: Block<{ exchange::BYTES.div_ceil(8) }> = Block::new();

/// A board with a serial line.
pub trait Wired: Board {
    /// The driver of the line.
    type Port: serial::Port;

    /// The number of this end of the line: 0 or 1.
    fn end() -> u8;

    /// The driver. Returns `None` if there is none. It is called once.
    fn port() -> Option<Self::Port>;
}

/// Runs the program on a board. Returns the exit status: 0, or the number of a [`Failed`]. It can run once, since it keeps its
/// static memory.
pub fn run<B: Wired>() -> u32 {
    match exchange_all::<B>() {
        Ok(()) => 0,
        Err(failed) => failed as u32,
    }
}

fn exchange_all<B: Wired>() -> Result<(), Failed> {
    let (Some(memory), Some(messages), Some(port)) = (MEMORY.take(), MESSAGES.take(), B::port()) else {
        return Err(Failed::SetUp);
    };
    let mut report = Report::new(B::open_log(c"serial-pair.txt").ok_or(Failed::Report)?);
    let end = End::new(memory, port, B::end(), B::micros)?;
    let outcome = Exchange::new(messages, B::end())?.run(end);
    report::memory(&mut report, end)?;
    report::traffic(&mut report, end)?;
    if let Some(stack) = B::stack() {
        report.line("stack", stack.deepest, " bytes used of", stack.size)?;
    }
    outcome
}
