//! Each rank sends a block to each other rank, and receives one from each, again and again. Rank 0 prints the time of one round.
//! Works for any number of ranks.
//!
//! ```sh
//! towline run -n 4 -- target/release/examples/all_to_all --rounds 10000
//! ```

use std::time::Instant;

use clap::Parser;
use towline::World;

#[derive(Parser)]
struct Arguments {
    /// Number of rounds that are measured; a tenth as many come before, to warm up
    #[arg(long, default_value_t = 1000)]
    rounds: u32,
    /// Bytes of the block that goes to each rank
    #[arg(long, default_value_t = 1024)]
    bytes: usize,
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let world = towline::init()?;
    let (size, bytes) = (world.size() as usize, arguments.bytes.max(4));
    let (mut out, mut into) = (vec![0u8; size * bytes], vec![0u8; size * bytes]);
    for block in out.chunks_exact_mut(bytes) {
        block[..4].copy_from_slice(&world.rank().to_le_bytes());
    }
    world.barrier()?;
    for _ in 0..arguments.rounds / 10 + 1 {
        exchange(&world, &out, &mut into, bytes)?;
    }
    world.barrier()?;
    let start = Instant::now();
    for _ in 0..arguments.rounds {
        exchange(&world, &out, &mut into, bytes)?;
    }
    world.barrier()?;
    let nanos = start.elapsed().as_nanos() as f64 / f64::from(arguments.rounds.max(1));
    for (from, block) in into.chunks_exact(bytes).enumerate() {
        if from != world.rank() as usize && block[..4] != (from as u32).to_le_bytes() {
            return Err(format!("the block from rank {from} is not the one that it sent").into());
        }
    }
    if world.rank() == 0 {
        println!("{size} ranks, blocks of {bytes} bytes, {:.2} us a round", nanos / 1000.0);
    }
    world.finish()?;
    Ok(())
}

/// One round. The own block is not copied.
fn exchange(world: &World, out: &[u8], into: &mut [u8], bytes: usize) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    world.scope(|scope| {
        for (from, block) in (0..size).zip(into.chunks_exact_mut(bytes)) {
            if from != rank {
                scope.irecv(from, 0, block)?;
            }
        }
        for step in 1..size {
            let to = (rank + step) % size;
            scope.isend(to, 0, &out[to as usize * bytes..][..bytes])?;
        }
        Ok::<(), towline::Error>(())
    })?;
    Ok(())
}
