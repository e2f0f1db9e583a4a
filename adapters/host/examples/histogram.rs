//! Counts the words of a file in a table that is distributed over all ranks, with atomic operations and without receives.
//!
//! Each rank reads a part of FILE. The hash of a word determines its entry in the table: a rank, and an entry in that rank's
//! part of a window. The first rank that needs the entry claims it by compare-and-swap, and puts the word's position in the
//! file into it.
//!
//! Any number of ranks will do. Without the launcher the program is a job of one rank.
//!
//! ```sh
//! towline run -n 4 -- target/release/examples/histogram README.md --top 10
//! ```

use std::collections::HashMap;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use towline::{AtomicOp, Window, World};

/// Counts the words of FILE, over all ranks, and prints them, the most frequent first
#[derive(Parser)]
struct Arguments {
    /// The file to count in; every rank reads it
    file: PathBuf,
    /// Maximum number of words to print
    #[arg(long)]
    top: Option<usize>,
    /// Entries of the table on each rank; by default as many as the file may need
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    places: Option<u64>,
}

/// An entry of the table: the word's hash, or 0; its count; its position in the file, and its length.
type Entry = [u64; 4];
const ENTRY: u64 = size_of::<Entry>() as u64;
const COUNT: u64 = 8;
const POSITION: u64 = 16;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    towline::run(|world| count(world, &arguments))
}

fn count(world: &World, arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let name = arguments.file.display();
    let text = fs::read_to_string(&arguments.file).map_err(|why| format!("{name}: {why}"))?;
    let (rank, size) = (u64::from(world.rank()), u64::from(world.size()));
    // At most every second byte begins a word. There are at least twice as many entries as words, so that collisions are rare.
    let places = arguments.places.unwrap_or((text.len() as u64).div_ceil(size) + 1);
    let table = Table { window: world.window(usize::try_from(places * ENTRY)?)?, size, places };
    let (from, to) = (text.len() as u64 * rank / size, text.len() as u64 * (rank + 1) / size);
    let mut known = HashMap::new();
    // A word belongs to the rank whose part contains its first byte.
    for (at, word) in words(&text).filter(|(at, _)| (from..to).contains(&(*at as u64))) {
        let place = match known.get(word) {
            Some(place) => *place,
            None => *known.entry(word).or_insert(table.find(at, word)?),
        };
        table.window.accumulate(place.0, place.1 + COUNT, AtomicOp::Add, &[1u64])?;
    }
    table.window.flush_all()?;
    world.barrier()?;
    if rank == 0 {
        for (word, count) in table.sorted(&text)?.into_iter().take(arguments.top.unwrap_or(usize::MAX)) {
            println!("{count:8} {word}");
        }
    }
    table.window.close()?;
    Ok(())
}

fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(|word| (word.as_ptr().addr() - text.as_ptr().addr(), word))
}

struct Table {
    window: Window,
    /// The number of ranks.
    size: u64,
    /// The number of entries on each rank.
    places: u64,
}

impl Table {
    /// The rank and the offset of a word's entry. If the entry is not in use, it is claimed for the word. The word's position in
    /// the file is `at`.
    fn find(&self, at: usize, word: &str) -> Result<(u32, u64), Box<dyn Error>> {
        let hash = hash(word);
        let rank = (hash % self.size) as u32;
        for step in 0..self.places {
            let place = (hash / self.size + step) % self.places * ENTRY;
            let found = self.window.compare_and_swap(rank, place, 0, hash)?;
            if found == 0 {
                self.window.put(rank, place + POSITION, &[at as u64, word.len() as u64])?;
            }
            if found == 0 || found == hash {
                return Ok((rank, place));
            }
        }
        Err(format!("all entries of rank {rank} are in use: give it more with --places").into())
    }

    /// All words and their counts, the most frequent first.
    fn sorted<'t>(&self, text: &'t str) -> Result<Vec<(&'t str, u64)>, Box<dyn Error>> {
        let mut all = Vec::new();
        let mut part: Vec<Entry> = vec![[0; 4]; usize::try_from(self.places)?];
        for rank in 0..self.size {
            self.window.get(rank as u32, 0, &mut part[..])?;
            for [_, count, at, len] in part.iter().filter(|place| place[0] != 0) {
                let (at, len) = (*at as usize, *len as usize);
                all.push((text.get(at..at + len).ok_or("the ranks have read different files")?, *count));
            }
        }
        all.sort_unstable_by_key(|(word, count)| (std::cmp::Reverse(*count), *word));
        Ok(all)
    }
}

/// FNV-1a, never 0. Two words of a file with the same hash would be counted as one. With a million different words that happens
/// in one of 37 million files.
fn hash(word: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    word.bytes().fold(0xcbf2_9ce4_8422_2325, step).max(1)
}
