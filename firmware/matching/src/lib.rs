//! The core's matching alone, for firmware that moves messages by itself: 8 posted receives and 8 unexpected messages. The program does
//! random steps, and compares each answer with a search through lists in order.
#![no_std]

mod lists;

use runtime::{Block, Board, Report, Unwritten};
use towline_core::arena::{Arena, OutOfMemory};
use towline_core::pml::matching::{ANY, Key, Matcher, Pattern};

use lists::{List, SLOTS};

/// Bytes of the tables, in words of the memory.
const TABLES: usize = Matcher::cost(SLOTS, SLOTS).div_ceil(8) + 1;
const STEPS: u32 = 20_000;

static MEMORY: Block<TABLES> = Block::new();

/// Why the program failed. The number is its exit status.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub enum Failed {
    /// Static memory is too small for the tables.
    SetUp = 1,
    /// An answer of the matcher is not that of the lists.
    Answer = 2,
    /// The report cannot be written.
    Report = 3,
}

impl From<OutOfMemory> for Failed {
    fn from(_: OutOfMemory) -> Self {
        Self::SetUp
    }
}

impl From<Unwritten> for Failed {
    fn from(_: Unwritten) -> Self {
        Self::Report
    }
}

/// Runs the program on a board. Returns the exit status: 0, or the number of a [`Failed`].
pub fn run<B: Board>() -> u32 {
    match compare::<B>() {
        Ok(()) => 0,
        Err(failed) => failed as u32,
    }
}

fn compare<B: Board>() -> Result<(), Failed> {
    let mut report = Report::new(B::open_log(c"matching.txt").ok_or(Failed::Report)?);
    let mut arena = Arena::new(MEMORY.take().ok_or(Failed::SetUp)?);
    let mut matcher = Matcher::new(&mut arena, SLOTS, SLOTS, 0x5eed)?;
    let (mut receives, mut messages) = (List::new(), List::new());
    let (mut random, mut matches) = (1, 0_usize);
    for _ in 0..STEPS {
        let right = match next(&mut random, 8) {
            0 => {
                let slot = next(&mut random, SLOTS);
                matcher.unpost(slot) == receives.take(slot)
            }
            1..=4 => {
                let (source, tag) = (or_any(&mut random), or_any(&mut random));
                let pattern = Pattern { context: 0, source, tag };
                let found = matcher.find_unexpected(&pattern);
                let right = found == messages.first(|key| pattern.accepts(key));
                match found {
                    Some(slot) => {
                        matches = matches.saturating_add(1);
                        right && matcher.remove_unexpected(slot) && messages.take(slot)
                    }
                    None => {
                        if let Some(slot) = receives.add(pattern) {
                            matcher.post(slot, pattern);
                        }
                        right
                    }
                }
            }
            _ => {
                let key = Key { context: 0, source: next(&mut random, 3), tag: next(&mut random, 3) };
                let found = matcher.take_posted(&key);
                let right = found == receives.first(|pattern| pattern.accepts(&key));
                match found {
                    Some(slot) => {
                        matches = matches.saturating_add(1);
                        right && receives.take(slot)
                    }
                    None => {
                        if let Some(slot) = messages.add(key) {
                            matcher.add_unexpected(slot, key);
                        }
                        right
                    }
                }
            }
        };
        if !right {
            return Err(Failed::Answer);
        }
    }
    report.line("matches", matches, " in steps", STEPS as usize)?;
    if let Some(stack) = B::stack() {
        report.line("stack", stack.deepest, " bytes used of", stack.size)?;
    }
    Ok(())
}

/// A random number below `limit`.
fn next(random: &mut u32, limit: u32) -> u32 {
    *random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    ((u64::from(*random) * u64::from(limit)) >> 32) as u32
}

/// A source or tag of a pattern.
fn or_any(random: &mut u32) -> u32 {
    match next(random, 4) {
        3 => ANY,
        number => number,
    }
}
