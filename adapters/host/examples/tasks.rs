//! Rank 0 gives tasks to the other ranks, one after the other. If a DPU fails, the tasks go on: a rank whose operation ended with an
//! error asks for the task again, and gets it by another transport.
//!
//! ```sh
//! towline dpu up -n 2 -- target/release/examples/tasks --tasks 1000
//! ```

use std::process::ExitCode;

use clap::Parser;
use towline::{Any, Error, World};

/// The tags of the messages.
const TASK: u32 = 1;
const RESULT: u32 = 2;
/// The number that ends a rank.
const STOP: u64 = u64::MAX;

#[derive(Parser)]
struct Arguments {
    /// Number of tasks
    #[arg(long, default_value_t = 1000)]
    tasks: u64,
    /// Bytes of the data of a task, at least 8
    #[arg(long, default_value_t = 10_000)]
    bytes: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    towline::run(|world| if world.rank() == 0 { give(world, &arguments) } else { work(world, &arguments) })
}

/// Gives the tasks, and sums their results.
fn give(world: &World, arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let workers = u64::from(world.size()) - 1;
    if workers == 0 {
        return Err("there is no other rank: start two or more".into());
    }
    let (mut sum, mut repeated) = (0u64, 0);
    for number in 0..arguments.tasks {
        let (worker, bytes) = ((number % workers) as u32 + 1, task(number, arguments.bytes));
        let mut tries = 0;
        sum = sum.wrapping_add(loop {
            tries += 1;
            if let Some(result) = unless_lost(perform(world, worker, number, &bytes))?.flatten() {
                break result;
            }
        });
        repeated += tries - 1;
    }
    for worker in 1..world.size() {
        // Complete only when the rank has it, since nothing follows by which a loss could be noticed.
        while unless_lost(world.ssend(worker, TASK, &task(STOP, arguments.bytes)[..]))?.is_none() {}
    }
    println!("{} tasks, sum {sum}, {repeated} repeated", arguments.tasks);
    Ok(())
}

/// Sends a task, and receives its result. `None`: the rank asks for the task again.
fn perform(world: &World, worker: u32, number: u64, bytes: &[u8]) -> Result<Option<u64>, Error> {
    world.send(worker, TASK, bytes)?;
    loop {
        let mut result = [0u64; 2];
        world.recv(worker, RESULT, &mut result)?;
        match result {
            [STOP, _] => return Ok(None),
            [of, value] if of == number => return Ok(Some(value)),
            _ => {} // the result of a task that was sent twice
        }
    }
}

/// Performs tasks until there are no more.
fn work(world: &World, arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let mut bytes = vec![0; arguments.bytes.max(8)];
    loop {
        let answer = match unless_lost(world.recv(Any, TASK, &mut bytes[..]))? {
            Some(_) => {
                let number = u64::from_le_bytes(*bytes.first_chunk().ok_or("the task is too short")?);
                if number == STOP {
                    return Ok(());
                }
                [number, bytes.iter().map(|byte| u64::from(*byte)).sum()]
            }
            None => [STOP, 0], // again
        };
        // If it is lost, rank 0 notices that, and sends the task again.
        unless_lost(world.send(0, RESULT, &answer))?;
    }
}

/// The data of a task.
fn task(number: u64, bytes: usize) -> Vec<u8> {
    let rest = (8..bytes.max(8)).map(|at| (number as usize).wrapping_mul(31).wrapping_add(at) as u8);
    number.to_le_bytes().into_iter().chain(rest).collect()
}

/// `None` if the operation has failed with a DPU.
fn unless_lost<T>(done: Result<T, Error>) -> Result<Option<T>, Error> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(Error::DeviceFailed | Error::MessagesLost { .. }) => Ok(None),
        Err(why) => Err(why),
    }
}
