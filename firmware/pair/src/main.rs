//! Two contexts of the core in one bare-metal program exchange messages of all kinds in both directions over the loopback
//! rail, and check every byte. The exit status is 0 or the number of an [`error::Failed`].
#![no_std]
#![no_main]

mod contexts;
mod error;
mod exchange;

use board::{Block, print, semihosting, stack};

use contexts::Contexts;
use error::Failed;
use exchange::{Case, LONGEST};

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
        "{} eager and {} rendezvous messages, {} fragments, every byte correct, in {} us of the emulator's time\n",
        counts.eager,
        counts.rendezvous,
        counts.fragments,
        board::micros().wrapping_sub(begin)
    );
    Ok(())
}

/// Writes the log to a file on the host.
fn log() -> Result<(), Failed> {
    let mut channel = semihosting::Channel::create(c"pair.defmt").ok_or(Failed::Log)?;
    let counts = trace::drain(&mut channel).map_err(|_| Failed::Log)?;
    print!("log: {} frames, {} lost\n", counts.frames, counts.lost);
    Ok(())
}
