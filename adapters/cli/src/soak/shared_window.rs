//! A window that all ranks of a job access. Each rank alone knows its own changes, and compares the window's content with
//! them.

use std::ops::Range;

use towline::{AtomicOp, Communicator, Error, Threads, Window};
use towline_host_tests::{pattern::patterned, random::Random};

/// Bytes of an area. Each part of the window has an area for each rank, behind the words of that rank. Only that rank
/// writes to it.
const AREA: u64 = 48 << 10;
/// Bytes of a rank's words in each part, and their offsets.
const WORDS: u64 = 64;
const SUM: u64 = 0;
const SWAPPED: u64 = 8;
const FLOAT: u64 = 16;
const SHORT: u64 = 24;
/// Number of tickets that the rank drew from this part.
const DRAWN: u64 = 32;
/// The digest of the rank's area, which the rank writes at the end.
const DIGEST: u64 = 40;

/// A window, and this rank's changes to it.
pub struct SharedWindow<L: Threads> {
    window: Window<L>,
    own: u32,
    ranks: u32,
    /// The content that this rank expects in the part of each rank.
    parts: Vec<Part>,
    pub operations: u64,
}

/// The expected content of the memory that this rank alone writes.
struct Part {
    area: Vec<u8>,
    sum: u64,
    swapped: u64,
    float: f64,
    short: u32,
    drawn: u64,
    /// Lower bound of the next ticket. All ranks draw from one word.
    next: u64,
    /// Ranges of operations that may be incomplete before the next flush.
    pending: Vec<Range<u64>>,
}

/// Why a check failed: the memory has a wrong value, or the operation failed.
pub enum WindowError {
    Mismatch(String),
    Failed(Error),
}

impl From<Error> for WindowError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

type Result<T> = std::result::Result<T, WindowError>;

/// Compares a value with the expected one.
fn same<T: PartialEq + std::fmt::Debug>(found: T, wanted: T, what: &str) -> Result<()> {
    if found == wanted {
        Ok(())
    } else {
        Err(WindowError::Mismatch(format!("{what}: found {found:?}, expected {wanted:?}")))
    }
}

/// A digest of these bytes in this order.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(1, |sum: u64, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

impl<L: Threads> SharedWindow<L> {
    /// Creates the window. Collective over all ranks.
    pub fn new(world: &Communicator<L>) -> std::result::Result<Self, Error> {
        let (own, ranks) = (world.rank(), world.size());
        let window = world.window((u64::from(ranks) * (WORDS + AREA) + 8) as usize)?;
        let part = || Part {
            area: vec![0; AREA as usize],
            sum: 0,
            swapped: 0,
            float: 0.0,
            short: 0,
            drawn: 0,
            next: 0,
            pending: Vec::new(),
        };
        Ok(Self { window, own, ranks, parts: (0..ranks).map(|_| part()).collect(), operations: 0 })
    }

    /// Offset of a rank's words in each part.
    fn words(rank: u32) -> u64 {
        u64::from(rank) * (WORDS + AREA)
    }

    /// Offset of the word from which all ranks draw their tickets.
    fn tickets(&self) -> u64 {
        u64::from(self.ranks) * (WORDS + AREA)
    }

    /// Does one random operation on the part of a rank.
    pub fn step(&mut self, to: u32, random: &mut Random) -> Result<()> {
        self.operations += 1;
        let words = Self::words(self.own);
        let word = random.word();
        match random.below(8) {
            0 | 1 => {
                let range = Self::somewhere(random);
                let (at, bytes) = (words + WORDS + range.start, patterned(word, (range.end - range.start) as usize));
                self.flush_if_pending(to, at..at + bytes.len() as u64)?;
                self.window.put(to, at, &bytes[..])?;
                self.part(to).area[range.start as usize..range.end as usize].copy_from_slice(&bytes);
                self.part(to).pending.push(at..at + bytes.len() as u64);
            }
            2 => self.compare_area(to, Self::somewhere(random))?,
            3 => {
                self.flush_if_pending(to, words + SUM..words + SUM + 8)?;
                let found = self.window.fetch_and_op(to, words + SUM, AtomicOp::Add, word)?;
                same(found, self.part(to).sum, "a sum")?;
                self.part(to).sum = found.wrapping_add(word);
            }
            4 => {
                // The sum is the same in any order.
                for _ in 0..random.between(1, 8) {
                    self.window.accumulate(to, words + SUM, AtomicOp::Add, &[word])?;
                    self.part(to).sum = self.part(to).sum.wrapping_add(word);
                }
                self.part(to).pending.push(words + SUM..words + SUM + 8);
            }
            5 => {
                let is = self.part(to).swapped;
                let guess = if random.chance(500) { is } else { !is };
                same(self.window.compare_and_swap(to, words + SWAPPED, guess, word)?, is, "a word to swap")?;
                if guess == is {
                    self.part(to).swapped = word;
                }
            }
            6 => {
                let found = self.window.fetch_and_op(to, words + FLOAT, AtomicOp::Add, 0.5)?;
                same(found, self.part(to).float, "a floating-point sum")?;
                self.part(to).float += 0.5;
                let found = self.window.fetch_and_op(to, words + SHORT, AtomicOp::Swap, word as u32)?;
                same(found, self.part(to).short, "a short word")?;
                self.part(to).short = word as u32;
            }
            _ => {
                let ticket = self.window.fetch_and_op(to, self.tickets(), AtomicOp::Add, 1u64)?;
                if ticket < self.part(to).next {
                    return Err(WindowError::Mismatch(format!("ticket {ticket} was drawn twice")));
                }
                self.part(to).next = ticket + 1;
                self.window.accumulate(to, words + DRAWN, AtomicOp::Add, &[1u64])?;
                self.part(to).drawn += 1;
            }
        }
        Ok(())
    }

    /// Checks that each of this rank's changes to a part was made exactly once.
    pub fn end(&mut self, to: u32) -> Result<()> {
        self.flush(to)?;
        self.compare_area(to, 0..AREA)?;
        let words = Self::words(self.own);
        let found = self.window.fetch_and_op(to, words + SUM, AtomicOp::Add, 0u64)?;
        same(found, self.part(to).sum, "a sum, at the end")?;
        let drawn = self.window.fetch_and_op(to, words + DRAWN, AtomicOp::Add, 0u64)?;
        same(drawn, self.part(to).drawn, "tickets drawn, at the end")?;
        let digest = digest(&self.part(to).area);
        same(
            self.window.fetch_and_op(to, words + DIGEST, AtomicOp::Swap, digest)?,
            0,
            "the word of the digest, which no rank has written",
        )
    }

    /// Checks this rank's own part, once all of `ranks` have called [`end`](Self::end) for it: it holds the words
    /// that they report to have written. If these are all ranks of the job, each ticket was drawn by one of them.
    pub fn check(&self, ranks: &[u32]) -> Result<()> {
        let read = |offset: u64| {
            let mut word = 0u64;
            self.window.read(offset as usize, &mut word).map(|()| word)
        };
        for rank in ranks {
            let mut area = vec![0u8; AREA as usize];
            self.window.read((Self::words(*rank) + WORDS) as usize, &mut area[..])?;
            same(read(Self::words(*rank) + DIGEST)?, digest(&area), "the digest of an area")?;
        }
        if ranks.len() < self.ranks as usize {
            return Ok(()); // a dead rank may have drawn a ticket without recording it
        }
        let drawn = (0..self.ranks).map(|rank| read(Self::words(rank) + DRAWN)).sum::<std::result::Result<u64, _>>()?;
        same(drawn, read(self.tickets())?, "tickets drawn by all")
    }

    fn part(&mut self, rank: u32) -> &mut Part {
        &mut self.parts[rank as usize]
    }

    fn somewhere(random: &mut Random) -> Range<u64> {
        let len = random.length(AREA);
        let start = random.between(0, AREA - len);
        start..start + len
    }

    fn compare_area(&mut self, to: u32, range: Range<u64>) -> Result<()> {
        let at = Self::words(self.own) + WORDS + range.start;
        self.flush_if_pending(to, at..at + (range.end - range.start))?;
        let mut bytes = vec![0u8; (range.end - range.start) as usize];
        self.window.get(to, at, &mut bytes[..])?;
        let wanted = &self.part(to).area[range.start as usize..range.end as usize];
        match wanted.iter().zip(&bytes).position(|(one, other)| one != other) {
            None => Ok(()),
            Some(wrong) => {
                Err(WindowError::Mismatch(format!("byte {wrong} of the bytes {range:?} of the area is wrong")))
            }
        }
    }

    /// Flushes if an incomplete operation overlaps the range, since operations may be reordered until they are flushed.
    fn flush_if_pending(&mut self, to: u32, range: Range<u64>) -> Result<()> {
        let meets = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        if self.part(to).pending.iter().any(meets) { self.flush(to) } else { Ok(()) }
    }

    fn flush(&mut self, to: u32) -> Result<()> {
        self.part(to).pending.clear();
        Ok(self.window.flush(to)?)
    }
}
