//! All threads of all processes send messages to each other. Each thread has a context of its own, so no lock is needed.
//!
//! Any number of ranks will do. Without the launcher the program is a job of one rank.
//!
//! ```sh
//! towline run -n 4 -- target/release/examples/contexts --contexts 3 --rounds 1000
//! ```

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use towline::{Address, Builder, Error};

#[derive(Clone, Copy, Parser)]
struct Arguments {
    /// Threads of each process, with a context each
    #[arg(long, default_value_t = 2)]
    contexts: u32,
    /// Messages from each context to each context
    #[arg(long, default_value_t = 1000)]
    rounds: u32,
    /// Bytes of a message, at least 12
    #[arg(long, default_value_t = 64)]
    bytes: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    Builder::new().run_contexts(arguments.contexts, |world| Ok(exchange(world, arguments)?))
}

/// The program of each thread.
fn exchange(world: &towline::World, arguments: Arguments) -> Result<(), Error> {
    let (all_contexts, own) = (world.all_contexts(), world.address());
    let len = arguments.bytes.max(12);
    let mut got = vec![vec![0u8; len]; all_contexts.size() as usize];
    all_contexts.barrier()?;
    let start = Instant::now();
    for round in 0..arguments.rounds {
        let mut message = vec![0u8; len];
        stamp(&mut message, own, round);
        all_contexts.scope(|s| {
            for (from, into) in (0..).zip(&mut got) {
                s.irecv(from, round, &mut into[..])?;
            }
            for rank in 0..world.size() {
                for index in 0..world.contexts() {
                    s.isend(all_contexts.rank_of(Address { rank, index })?, round, &message[..])?;
                }
            }
            Ok::<(), Error>(())
        })?;
        for (from, bytes) in (0..).zip(&got) {
            let mut expected = [0; 12];
            stamp(&mut expected, all_contexts.address_of(from)?, round);
            assert_eq!(bytes[..12], expected, "{own}: round {round} of {from}");
        }
    }
    all_contexts.barrier()?;
    if all_contexts.rank() == 0 {
        let messages = u64::from(arguments.rounds) * u64::from(all_contexts.size()) * u64::from(all_contexts.size());
        let rate = messages as f64 / start.elapsed().as_secs_f64() / 1e6;
        let (ranks, contexts) = (world.size(), world.contexts());
        println!("{ranks} ranks, {contexts} contexts each, {messages} messages of {len} bytes, {rate:.2} million/s");
    }
    Ok(())
}

/// Writes the sender's address and the round to the beginning of a message.
fn stamp(message: &mut [u8], from: Address, round: u32) {
    let words = [from.rank, from.index, round].into_iter().flat_map(u32::to_le_bytes);
    message.iter_mut().zip(words).for_each(|(to, byte)| *to = byte);
}
