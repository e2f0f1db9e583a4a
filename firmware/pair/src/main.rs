//! Two contexts of the core in one bare-metal program, over the loopback rail: messages of all kinds both ways, every
//! byte checked. The exit status tells what failed, see [`Failed`].
#![no_std]
#![no_main]

mod contexts;
mod exchange;

use board::{Block, print, semihosting, stack};

use contexts::Contexts;
use exchange::{Case, LONGEST};

/// What an exchange may end with, and the program's exit status for it.
#[derive(Clone, Copy, Debug, defmt::Format)]
#[repr(u32)]
pub enum Failed {
    /// Static memory is too small for the tables, or the loopback rail has not two ends.
    SetUp = 1,
    /// An operation was refused.
    Refused = 2,
    /// A request ended without success.
    Request = 3,
    /// The status of a request is not what was sent.
    Status = 4,
    /// Bytes differ from those that were sent, or lie outside the message.
    Bytes = 5,
    /// Nothing moves any more.
    Stuck = 6,
    /// Not all transitions of the protocol were seen.
    Untested = 7,
    /// Requests, envelopes or units are still taken at the end.
    Leak = 8,
    /// The log cannot be written.
    Log = 9,
}

static TABLES: Block<{ Contexts::BYTES / 8 + 1 }> = Block::new();
static OUT: Block<{ LONGEST / 8 + 1 }> = Block::new();
static IN: Block<{ LONGEST / 8 + 1 }> = Block::new();

defmt::timestamp!("{=u64:us}", board::micros());

#[unsafe(no_mangle)]
fn program() -> u32 {
    let outcome = exchange_all();
    let logged = log();
    print!("stack: {} of {} bytes\n", stack::deepest(), stack::size());
    match outcome.and(logged) {
        Ok(()) => 0,
        Err(failed) => {
            print!("failed: {failed:?}\n");
            failed as u32
        }
    }
}

fn exchange_all() -> Result<(), Failed> {
    let (Some(tables), Some(out), Some(into)) = (TABLES.take(), OUT.take(), IN.take()) else {
        return Err(Failed::SetUp);
    };
    print!("tables of two contexts and their rails: {} bytes\n", Contexts::BYTES);
    let begin = board::micros();
    let counts = contexts::with(tables, |contexts| {
        for case in Case::all() {
            exchange::run(contexts, case, out, into)?;
        }
        contexts.finish()
    })?;
    print!(
        "{} eager and {} rendezvous messages, {} fragments, every byte right, in {} us of the emulator\n",
        counts.eager,
        counts.rendezvous,
        counts.fragments,
        board::micros().wrapping_sub(begin)
    );
    Ok(())
}

/// Hands the log to the host.
fn log() -> Result<(), Failed> {
    let mut channel = semihosting::Channel::create(c"pair.defmt").ok_or(Failed::Log)?;
    let counts = trace::drain(&mut channel).map_err(|_| Failed::Log)?;
    print!("log: {} frames, {} lost\n", counts.frames, counts.lost);
    Ok(())
}
