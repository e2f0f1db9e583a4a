//! Two contexts of the core in one program exchange messages of all kinds in both directions over the loopback rail, and check
//! every byte. Then the program replays the recorded trace of matching operations, and prints the results.
#![no_std]

mod contexts;
mod error;
mod exchange;

use core::fmt::Arguments;
use core::marker::PhantomData;

use replay::loopback;
use runtime::{Block, Board};

use contexts::Contexts;
pub use error::Failed;
use exchange::{Case, LONGEST};

/// Messages of the measurement at the end.
const SHORT: u32 = 256;

/// Bytes of the tables: the contexts of the exchange use them first, then those of the trace.
const TABLE_BYTES: usize = if Contexts::BYTES > loopback::BYTES { Contexts::BYTES } else { loopback::BYTES };
const _: () = assert!(LONGEST >= replay::replay::MEMORY);

static TABLES: Block<{ TABLE_BYTES / 8 + 1 }> = Block::new();
static OUT: Block<{ LONGEST / 8 + 1 }> = Block::new();
static IN: Block<{ LONGEST / 8 + 1 }> = Block::new();

/// Runs the program on a board. Returns the exit status: 0, or the number of a [`Failed`]. It can run once, since it keeps its
/// static memory.
pub fn run<B: Board>() -> u32 {
    let program = Program::<B>(PhantomData);
    let outcome = program.work();
    let logged = program.log();
    if let Some(stack) = B::stack() {
        B::print(format_args!("stack: {} of {} bytes\n", stack.deepest, stack.size));
    }
    match outcome.and(logged) {
        Ok(()) => 0,
        Err(failed) => {
            B::print(format_args!("failed: {failed:?}\n"));
            failed as u32
        }
    }
}

struct Program<B>(PhantomData<B>);

impl<B: Board> Program<B> {
    fn work(&self) -> Result<(), Failed> {
        let (Some(tables), Some(out), Some(into)) = (TABLES.take(), OUT.take(), IN.take()) else {
            return Err(Failed::SetUp);
        };
        self.exchange_all(tables, out, into)?;
        self.replay(tables, out)
    }

    fn exchange_all(&self, tables: &mut [u8], out: &mut [u8], into: &mut [u8]) -> Result<(), Failed> {
        B::print(format_args!("tables of two contexts and their rails: {} bytes\n", Contexts::BYTES));
        let [peer, request, message, payload] = contexts::EACH;
        B::print(format_args!(
            "memory: peer {peer}, request {request}, unexpected message {message}, with payload {payload}\n"
        ));
        let begin = B::micros();
        let (counts, short) = contexts::with(tables, B::micros, |contexts| {
            for case in Case::all() {
                exchange::run(contexts, case, out, into)?;
            }
            let counts = contexts.finish()?;
            let begin = B::micros();
            exchange::short(contexts, SHORT)?;
            Ok((counts, B::micros().wrapping_sub(begin)))
        })?;
        B::print(format_args!(
            "{} eager and {} rendezvous messages, {} fragments, every byte correct, in {} us\n",
            counts.eager,
            counts.rendezvous,
            counts.fragments,
            B::micros().wrapping_sub(begin)
        ));
        B::print(format_args!("short: {SHORT} eager messages of 8 bytes sent and received in {short} us\n"));
        Ok(())
    }

    /// Replays the recorded trace. Each line of the results follows the word `replay`.
    fn replay(&self, tables: &mut [u8], memory: &mut [u8]) -> Result<(), Failed> {
        let begin = B::micros();
        let print = |line: Arguments<'_>| B::print(format_args!("replay {line}"));
        loopback::replay(replay::TRACE, tables, memory, B::micros, print).map_err(|why| {
            B::print(format_args!("{why}\n"));
            Failed::Replay
        })?;
        B::print(format_args!("the trace was replayed in {} us\n", B::micros().wrapping_sub(begin)));
        Ok(())
    }

    /// Gives the log to the host.
    fn log(&self) -> Result<(), Failed> {
        let mut stream = B::open_log(c"pair.defmt").ok_or(Failed::Log)?;
        let counts = trace::drain(&mut stream).map_err(|_| Failed::Log)?;
        B::print(format_args!("log: {} frames, {} lost\n", counts.frames, counts.lost));
        Ok(())
    }
}
