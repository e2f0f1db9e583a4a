//! Receives short messages whose receives were posted before, to count the instructions that the receiving host executes per
//! message (`host-tests/scripts/host-instructions`). Two ranks. In each round, rank 0 posts receives and says so, and makes no call until
//! their messages have come. Then it takes them. Only the functions `post` and `take` are of interest for the count.
//!
//! `towline run -n 2 -- target/release/examples/receives 100`

use std::time::Duration;
use towline::{Error, Scope, ScopedRecv, World};

/// Messages of a round.
const MESSAGES: usize = 32;
/// Enough time for the messages of a round to reach the other rank, or its device, also under a tool that counts.
const ROUND: Duration = Duration::from_millis(20);

const DATA: u32 = 1;
const READY: u32 = 2;

type Receives<'scope> = Vec<ScopedRecv<'scope, [u8; 8]>>;

#[inline(never)]
fn post<'scope>(
    scope: &'scope Scope<'scope, '_>,
    receives: &mut Receives<'scope>,
    memory: &'scope mut [[u8; 8]],
) -> Result<(), Error> {
    for memory in memory {
        receives.push(scope.irecv(1, DATA, memory)?);
    }
    Ok(())
}

#[inline(never)]
fn take(receives: &mut Receives<'_>) -> Result<(), Error> {
    receives.drain(..).try_for_each(|receive| receive.wait().map(drop))
}

fn round(world: &World, number: u64) -> Result<(), Error> {
    let mut memory = [[0; 8]; MESSAGES];
    world.scope(|scope| {
        let mut receives = Vec::with_capacity(MESSAGES);
        post(scope, &mut receives, &mut memory)?;
        world.send(1, READY, &number)?;
        std::thread::sleep(ROUND);
        take(&mut receives)
    })?;
    assert!(memory.iter().all(|message| u64::from_le_bytes(*message) == number));
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds: u64 = std::env::args().nth(1).map_or(Ok(100), |rounds| rounds.parse())?;
    let world = towline::init()?;
    for number in 0..rounds {
        if world.rank() == 0 {
            round(&world, number)?;
        } else {
            world.recv(0, READY, &mut [0u64])?;
            for _ in 0..MESSAGES {
                world.send(0, DATA, &number.to_le_bytes())?;
            }
        }
    }
    if world.rank() == 0 {
        println!("{} messages", rounds * MESSAGES as u64);
    }
    Ok(world.finish()?)
}
