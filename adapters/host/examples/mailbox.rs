//! Rank 0 puts letters into the memory of the other ranks, and gets their answers from there. A rank whose window the DPUs serve
//! makes no call meanwhile: it looks at a word of its memory, and writes the answer there.
//!
//! Any number of ranks will do, over any transport. Without DPUs the other ranks make progress while they wait.
//!
//! ```sh
//! towline run -n 3 -- target/release/examples/mailbox --letters 100
//! ```

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use towline::{AtomicOp, Error, Window, World};

#[derive(Clone, Copy, Parser)]
struct Arguments {
    /// Letters to each rank
    #[arg(long, default_value_t = 100)]
    letters: u64,
    /// Words of a letter
    #[arg(long, default_value_t = 5000)]
    words: usize,
}

/// Where the number of the last letter is, that of the last answer, its content, and the letter.
const LETTER: u64 = 0;
const ANSWER: u64 = 8;
const SUM: u64 = 16;
const WORDS: u64 = 24;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    towline::run(|world| {
        let window = world.window(WORDS as usize + 8 * arguments.words)?;
        match world.rank() {
            0 => write(world, &window, arguments)?,
            rank if window.is_on_dpu(rank)? => answer(&window, arguments, || Ok(()))?,
            _ => answer(&window, arguments, || {
                world.progress();
                Ok(())
            })?,
        }
        Ok(window.close()?)
    })
}

/// The program of rank 0.
fn write(world: &World, window: &Window, arguments: Arguments) -> Result<(), Error> {
    for number in 1..=arguments.letters {
        let letter: Vec<u64> = (0..arguments.words as u64).map(|word| word.wrapping_mul(number)).collect();
        let sum = letter.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
        for rank in 1..world.size() {
            window.put(rank, WORDS, &letter[..])?;
            window.flush(rank)?; // the number comes after the letter
            assert_eq!(window.fetch_and_op(rank, LETTER, AtomicOp::Swap, number)?, number - 1);
        }
        for rank in 1..world.size() {
            // A get of a whole word, and no atomic, since the owner writes the word by an ordinary store.
            let mut answered = 0u64;
            while answered != number {
                std::thread::yield_now();
                window.get(rank, ANSWER, &mut answered)?;
            }
            let mut answer = 0u64;
            window.get(rank, SUM, &mut answer)?;
            assert_eq!(answer, sum, "letter {number} to rank {rank}");
        }
    }
    let others = 1..world.size();
    let served = others.map(|rank| window.is_on_dpu(rank)).collect::<Result<Vec<_>, Error>>()?;
    let served = served.iter().filter(|served| **served).count();
    println!("{} letters to each of {} ranks, {served} of which made no call", arguments.letters, world.size() - 1);
    Ok(())
}

/// The program of the other ranks. `wait` is called while there is no letter.
fn answer(window: &Window, arguments: Arguments, wait: impl Fn() -> Result<(), Error>) -> Result<(), Error> {
    let base = window.base_raw();
    // SAFETY: the window has this many bytes, its memory is aligned for words, and it lives longer than the references. Other ranks
    // change the words by atomic operations, or while no rank reads them.
    let word = |at: u64| unsafe { &*base.add(at as usize).cast::<AtomicU64>() };
    for number in 1..=arguments.letters {
        while word(LETTER).load(Ordering::Acquire) != number {
            wait()?;
            std::thread::yield_now();
        }
        let words = (0..arguments.words as u64).map(|index| word(WORDS + 8 * index).load(Ordering::Relaxed));
        word(SUM).store(words.fold(0u64, u64::wrapping_add), Ordering::Relaxed);
        word(ANSWER).store(number, Ordering::Release);
    }
    Ok(())
}
