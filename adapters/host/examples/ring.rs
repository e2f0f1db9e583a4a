//! A token is sent around the ring of all ranks. Rank 0 prints the time of one hop.
//!
//! Any number of ranks will do. Without the launcher the program is a job of one rank.
//!
//! ```sh
//! towline run -n 4 -- target/release/examples/ring --rounds 10000
//! ```

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use towline::World;

#[derive(Parser)]
struct Arguments {
    /// Number of times that the token is sent around the ring
    #[arg(long, default_value_t = 1000)]
    rounds: u32,
    /// Bytes of the token, at least 8
    #[arg(long, default_value_t = 8)]
    bytes: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    towline::run(|world| pass(world, &arguments))
}

fn pass(world: &World, arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let (rank, size) = (world.rank(), world.size());
    let (before, next) = ((rank + size - 1) % size, (rank + 1) % size);
    let mut token = vec![0u8; arguments.bytes.max(8)];
    let mut back = token.clone();
    world.barrier()?;
    let start = Instant::now();
    for _ in 0..arguments.rounds {
        if rank == 0 {
            count(&mut token);
            // Both at the same time, since rank 0 may be its own neighbour.
            world.sendrecv(&token[..], next, 0, &mut back[..], before, 0)?;
            std::mem::swap(&mut token, &mut back);
        } else {
            world.recv(before, 0, &mut token[..])?;
            count(&mut token);
            world.send(next, 0, &token[..])?;
        }
    }
    let took = start.elapsed();
    if rank == 0 {
        let hops = u64::from(arguments.rounds) * u64::from(size);
        let counted = u64::from_le_bytes(*token.first_chunk().ok_or("the token is too short")?);
        if counted != hops {
            return Err(format!("the token counted {counted} hops, and there were {hops}").into());
        }
        let nanos = took.as_nanos() as f64 / hops.max(1) as f64;
        println!("{size} ranks, {hops} hops of {} bytes, {nanos:.0} ns a hop", token.len());
    }
    Ok(())
}

/// Adds one to the token. Each rank calls it, so that a lost hop is detected.
fn count(token: &mut [u8]) {
    if let Some(counter) = token.first_chunk_mut::<8>() {
        *counter = (u64::from_le_bytes(*counter) + 1).to_le_bytes();
    }
}
