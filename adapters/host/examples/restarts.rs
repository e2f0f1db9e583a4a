//! The other ranks ask rank 1 for squares. It dies once, in the middle, and the launcher restarts it: then they ask the new process.
//!
//! ```sh
//! towline run -n 3 --restart 1 -- target/release/examples/restarts --questions 1000
//! towline dpu up -n 3 --restart 1 -- target/release/examples/restarts --questions 1000
//! ```

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use towline::{Any, Error, World};

/// The tags of the messages.
const QUESTION: u32 = 1;
const ANSWER: u32 = 2;
/// The number by which a rank says that it has no more questions.
const ENOUGH: u64 = u64::MAX;
/// The rank that answers.
const SERVER: u32 = 1;
/// How long its restart may take.
const RESTART: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct Arguments {
    /// Questions of each rank
    #[arg(long, default_value_t = 100)]
    questions: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    towline::run(|world| {
        if world.size() < 2 {
            return Err("there is no rank 1: start two or more".into());
        }
        if world.rank() == SERVER {
            serve(world, arguments.questions)?;
        } else {
            let (sum, restarts) = ask(world, arguments.questions)?;
            println!("rank {}: sum {sum}, {restarts} restarts", world.rank());
        }
        world.barrier()?;
        Ok(())
    })
}

/// Answers until all other ranks have enough. The first process dies after half of the questions.
fn serve(world: &World, questions: u64) -> Result<(), Box<dyn std::error::Error>> {
    let (mut left, mut answered) = (world.size() - 1, 0);
    while left != 0 {
        let mut number = 0u64;
        let asker = world.recv(Any, QUESTION, &mut number)?.source;
        if number == ENOUGH {
            left -= 1;
            continue;
        }
        answered += 1;
        if world.incarnation() == 1 && answered == questions * u64::from(left) / 2 {
            eprintln!("rank {SERVER} dies");
            std::process::exit(3);
        }
        world.send(asker, ANSWER, &[number, number.wrapping_mul(number)])?;
    }
    Ok(())
}

/// Asks for squares, and returns their sum, and how often rank 1 was restarted.
fn ask(world: &World, questions: u64) -> Result<(u64, u32), Box<dyn std::error::Error>> {
    let (mut sum, mut restarts) = (0u64, 0);
    for number in (0..questions).chain([ENOUGH]) {
        loop {
            match square(world, number) {
                Ok(square) => {
                    sum = sum.wrapping_add(square);
                    break;
                }
                Err(Error::PeerFailed { rank }) => {
                    world.rejoin(rank, RESTART)?;
                    restarts += 1;
                }
                Err(why) => return Err(why.into()),
            }
        }
    }
    Ok((sum, restarts))
}

/// The square of a number.
fn square(world: &World, number: u64) -> Result<u64, Error> {
    // Complete when rank 1 has it, since nothing follows the last one by which a loss could be noticed.
    world.ssend(SERVER, QUESTION, &number)?;
    if number == ENOUGH {
        return Ok(0);
    }
    let mut answer = [0u64; 2];
    world.recv(SERVER, ANSWER, &mut answer)?;
    Ok(answer[1])
}
