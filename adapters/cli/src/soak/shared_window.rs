//! Memory that all ranks of a job reach. What each does there is known to it alone, and what it finds is compared with that.

use std::ops::Range;

use towline::{AtomicOp, Communicator, Error, Threads, Window};
use towline_host_tests::{pattern::patterned, random::Random};

/// Bytes of each rank's part that one rank alone writes, behind its words.
const AREA: u64 = 48 << 10;
/// Bytes of a rank's words in each part, and where they are.
const WORDS: u64 = 64;
const SUM: u64 = 0;
const SWAPPED: u64 = 8;
const FLOAT: u64 = 16;
const SHORT: u64 = 24;
/// How many tickets it drew there.
const DRAWN: u64 = 32;
/// What its area comes to, once it has done all.
const DIGEST: u64 = 40;

/// A window, and what this rank did to it.
pub struct SharedWindow<L: Threads> {
    window: Window<L>,
    own: u32,
    ranks: u32,
    /// Of this rank, in each other's part.
    parts: Vec<Part>,
    pub operations: u64,
}

/// What has to be in the memory that this rank alone writes.
struct Part {
    area: Vec<u8>,
    sum: u64,
    swapped: u64,
    float: f64,
    short: u32,
    drawn: u64,
    /// What the next ticket is at least: all ranks draw from one word.
    next: u64,
    /// What may not be there before the next flush.
    pending: Vec<Range<u64>>,
}

/// Why an operation did not do what it had to: the memory is wrong, or the window says so.
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

/// What was found, if it is not what was to be.
fn same<T: PartialEq + std::fmt::Debug>(found: T, wanted: T, what: &str) -> Result<()> {
    if found == wanted {
        Ok(())
    } else {
        Err(WindowError::Mismatch(format!("{what}: {found:?} is there, {wanted:?} was to be")))
    }
}

/// A number of these bytes in this order.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(1, |sum: u64, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

impl<L: Threads> SharedWindow<L> {
    /// All ranks make one together.
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

    /// Where a rank's words are in each part.
    fn words(rank: u32) -> u64 {
        u64::from(rank) * (WORDS + AREA)
    }

    /// Where the word is that all draw their tickets from.
    fn tickets(&self) -> u64 {
        u64::from(self.ranks) * (WORDS + AREA)
    }

    /// Does something to a rank's part.
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
                // In any order, they come to the same.
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

    /// All that this rank did to a part is there, once.
    pub fn end(&mut self, to: u32) -> Result<()> {
        self.flush(to)?;
        self.compare_area(to, 0..AREA)?;
        let words = Self::words(self.own);
        let found = self.window.fetch_and_op(to, words + SUM, AtomicOp::Add, 0u64)?;
        same(found, self.part(to).sum, "a sum, at the end")?;
        let drawn = self.window.fetch_and_op(to, words + DRAWN, AtomicOp::Add, 0u64)?;
        same(drawn, self.part(to).drawn, "tickets drawn, at the end")?;
        let digest = digest(&self.part(to).area);
        same(self.window.fetch_and_op(to, words + DIGEST, AtomicOp::Swap, digest)?, 0, "a word that nobody wrote")
    }

    /// Once all of these have come to the [end](Self::end) of this rank's own part: it holds what they say they put there. If these
    /// are all there ever were, each ticket was drawn by somebody.
    pub fn check(&self, ranks: &[u32]) -> Result<()> {
        let read = |offset: u64| {
            let mut word = 0u64;
            self.window.read(offset as usize, &mut word).map(|()| word)
        };
        for rank in ranks {
            let mut area = vec![0u8; AREA as usize];
            self.window.read((Self::words(*rank) + WORDS) as usize, &mut area[..])?;
            same(read(Self::words(*rank) + DIGEST)?, digest(&area), "what an area comes to")?;
        }
        if ranks.len() < self.ranks as usize {
            return Ok(()); // who died may have drawn a ticket and not said so
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
            Some(wrong) => Err(WindowError::Mismatch(format!("of bytes {range:?} of the area, byte {wrong} is wrong"))),
        }
    }

    /// Operations may overtake each other until they are flushed.
    fn flush_if_pending(&mut self, to: u32, range: Range<u64>) -> Result<()> {
        let meets = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        if self.part(to).pending.iter().any(meets) { self.flush(to) } else { Ok(()) }
    }

    fn flush(&mut self, to: u32) -> Result<()> {
        self.part(to).pending.clear();
        Ok(self.window.flush(to)?)
    }
}
