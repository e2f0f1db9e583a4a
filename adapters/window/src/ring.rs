//! A ring of slots of 64 bytes with one writer and one reader.
//!
//! Words have 32 bits and are little-endian. Slot: word 0 is a sequence number, words 1 to 15 are the entry. A position counts slots and wraps at 2^32. The sequence number of
//! position p is `p << 1 | 1`, so it is never 0, and differs from that of the slot's earlier laps.
//!
//! The writer stores the entry, and then the sequence number with release ordering. The reader loads the sequence number with
//! acquire ordering; if it is that of the next position, the slot has an entry. The reader copies the entry, and stores its position
//! with release ordering once per quarter of the ring. The writer loads that position with acquire ordering when the ring looks full.
//!
//! The other side can write any word at any time. The writer takes only the reader's position from shared memory, and checks it
//! against its own. The reader takes only the entry, which its user checks.

use core::fmt;

use crate::atomics::{AtomicU32, Ordering};

/// Bytes of a slot.
pub const SLOT: usize = 64;
/// Words of an entry.
pub const WORDS: usize = 15;
/// The first position of a ring. It is shortly before the end of the numbers, so each run crosses it.
pub const START: u32 = u32::MAX - 0x3f;

/// An entry of a ring.
pub type Entry = [u32; WORDS];

/// The memory of a ring. The slot of a position is the position modulo the number of slots.
pub trait Slots {
    /// The number of slots, a power of two.
    fn slots(&self) -> u32;
    /// The words of the slot of a position: the sequence number, and then those of the entry.
    fn slot(&self, position: u32) -> Option<&[AtomicU32]>;
    /// The word in which the reader stores its position.
    fn taken(&self) -> &AtomicU32;
}

/// The other side wrote a position that it cannot have.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Violation;

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the other side of the window wrote a ring position that it cannot have")
    }
}

impl core::error::Error for Violation {}

towline_core::debug_as_display!(Violation);

/// Whether an entry was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Pushed {
    /// It was.
    Done,
    /// The ring is full. Nothing was written; try again when the reader has read.
    Full,
}

const fn sequence(position: u32) -> u32 {
    position << 1 | 1
}

/// The end that writes. It is used by one thread at a time.
#[derive(Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Writer {
    next: u32,
    /// The reader's position, as far as it is known.
    taken: u32,
}

impl Default for Writer {
    fn default() -> Self {
        Self::new()
    }
}

impl Writer {
    /// The writer of an empty ring.
    pub const fn new() -> Self {
        Self { next: START, taken: START }
    }

    /// How many entries fit now, at least.
    ///
    /// # Errors
    /// [`Violation`] of the reader.
    pub fn room(&mut self, ring: &impl Slots) -> Result<u32, Violation> {
        let written = self.next.wrapping_sub(self.taken);
        if written < ring.slots() {
            return Ok(ring.slots() - written);
        }
        let taken = u32::from_le(ring.taken().load(Ordering::Acquire));
        if self.next.wrapping_sub(taken) > written {
            return Err(Violation);
        }
        self.taken = taken;
        Ok(ring.slots().saturating_sub(self.next.wrapping_sub(taken)))
    }

    /// Writes an entry. The other words of the slot keep what they have.
    ///
    /// # Errors
    /// [`Violation`] of the reader.
    pub fn push(&mut self, ring: &impl Slots, entry: &[u32]) -> Result<Pushed, Violation> {
        if self.room(ring)? == 0 {
            return Ok(Pushed::Full);
        }
        if let Some((number, words)) = ring.slot(self.next).and_then(<[_]>::split_first) {
            for (word, value) in words.iter().zip(entry) {
                word.store(value.to_le(), Ordering::Relaxed);
            }
            number.store(sequence(self.next).to_le(), Ordering::Release);
        }
        self.next = self.next.wrapping_add(1);
        Ok(Pushed::Done)
    }
}

/// The end that reads. It is used by one thread at a time.
#[derive(Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Reader {
    next: u32,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// The reader of an empty ring.
    pub const fn new() -> Self {
        Self { next: START }
    }

    /// Whether the last entry that was taken has given slots back to the writer.
    pub fn has_given_back(&self, ring: &impl Slots) -> bool {
        self.next & (ring.slots() / 4).max(1).wrapping_sub(1) == 0
    }

    /// Whether there is an entry.
    pub fn has_next(&self, ring: &impl Slots) -> bool {
        self.peek(ring).is_some()
    }

    /// The words of the next entry, which is not taken. Those that the writer has not written have any value. A hostile writer may change
    /// each of them at any time, so the caller loads each once.
    #[inline]
    pub fn peek<'r>(&self, ring: &'r impl Slots) -> Option<&'r [AtomicU32]> {
        let (number, words) = ring.slot(self.next)?.split_first()?;
        (number.load(Ordering::Acquire) == sequence(self.next).to_le()).then_some(words)
    }

    /// Takes the entry that [`peek`](Self::peek) has returned. Returns whether slots were given back to the writer.
    #[inline]
    pub fn skip(&mut self, ring: &impl Slots) -> bool {
        self.next = self.next.wrapping_add(1);
        let gives_back = self.has_given_back(ring);
        if gives_back {
            ring.taken().store(self.next.to_le(), Ordering::Release);
        }
        gives_back
    }

    /// Takes the next entry. Returns `None` if there is none. Words that the writer has not written have any value.
    pub fn pop(&mut self, ring: &impl Slots) -> Option<Entry> {
        let mut entry = [0; WORDS];
        for (value, word) in entry.iter_mut().zip(self.peek(ring)?) {
            *value = u32::from_le(word.load(Ordering::Relaxed));
        }
        self.skip(ring);
        Some(entry)
    }
}

/// Empties a ring: clears the sequence numbers, and sets the reader's position to the start. Neither end may use it meanwhile.
pub fn clear(ring: &impl Slots) {
    for slot in 0..ring.slots() {
        if let Some(word) = ring.slot(slot).and_then(<[_]>::first) {
            word.store(0, Ordering::Relaxed);
        }
    }
    ring.taken().store(START.to_le(), Ordering::Relaxed);
}
