//! A rank's board: who it is, whether it sleeps, and its doorbell.

use std::path::Path;

use towline_core::rail::Lost;

use crate::atomics::{AtomicU32, AtomicU64, Ordering};
use crate::error::OpenError;
use crate::host::process::Process;
use crate::segment::layout::{
    BARRIER, BELL, BITS, BORN, CLOSED, MAGIC, MAGIC_AT, NONCE, PID, PID_SPACE, RANKS, SLEEP, bit_words, board_bytes,
};
use crate::segment::file::Segment;

/// A board, one's own or a peer's.
#[derive(Debug)]
pub struct Board {
    /// Polled, so it is not looked up each time.
    bell: *const AtomicU32,
    segment: Segment,
    /// Ranks that the doorbell has bits for, as checked when the board was mapped.
    ranks: u32,
}

// SAFETY: `bell` is an address in the segment that the board owns, reached as an atomic.
unsafe impl Send for Board {}

impl Board {
    /// Makes one's own.
    pub fn create(path: &Path, ranks: u32, me: &Process, nonce: u64, barrier: bool) -> Result<Self, OpenError> {
        let segment = Segment::create(path, board_bytes(ranks))?;
        let write = |at, value| segment.word(at).store(value, Ordering::Relaxed);
        write(PID, u64::from(me.pid));
        write(BORN, me.born);
        write(PID_SPACE, me.space);
        write(NONCE, nonce);
        write(RANKS, u64::from(ranks));
        write(BARRIER, u64::from(barrier));
        segment.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        Ok(Self { bell: segment.half(BELL), segment, ranks })
    }

    /// Maps a peer's, if it has bits for `rank`.
    pub fn open(path: &Path, rank: u32) -> Result<Self, OpenError> {
        let malformed = || OpenError::Malformed(path.to_owned());
        let segment = Segment::open(path, board_bytes(1))?;
        if segment.word(MAGIC_AT).load(Ordering::Acquire) != MAGIC {
            return Err(malformed());
        }
        let ranks = u32::try_from(segment.word(RANKS).load(Ordering::Relaxed)).map_err(|_| malformed())?;
        if rank >= ranks || segment.len() < board_bytes(ranks) {
            return Err(malformed());
        }
        Ok(Self { bell: segment.half(BELL), segment, ranks })
    }

    /// This incarnation of its owner.
    pub fn nonce(&self) -> u64 {
        self.segment.word(NONCE).load(Ordering::Relaxed)
    }

    /// Its owner.
    pub fn owner(&self) -> Process {
        let read = |at| self.segment.word(at).load(Ordering::Relaxed);
        Process { pid: read(PID) as u32, born: read(BORN), space: read(PID_SPACE) }
    }

    /// Whether its owner makes others pass a barrier before it sleeps.
    pub fn has_barrier(&self) -> bool {
        self.segment.word(BARRIER).load(Ordering::Relaxed) == 1
    }

    /// How its owner went, if it did; all that it sent is visible then.
    pub fn closed(&self) -> Option<Lost> {
        match self.segment.word(CLOSED).load(Ordering::Acquire) {
            0 => None,
            1 => Some(Lost::Closed),
            _ => Some(Lost::Broken),
        }
    }

    /// Says that its owner sends no more: it came to its end in good order, or not.
    pub fn close(&self, well: bool) {
        self.segment.word(CLOSED).store(if well { 1 } else { 2 }, Ordering::Release);
    }

    /// The word its owner sleeps on.
    pub fn sleep(&self) -> &AtomicU32 {
        self.segment.half(SLEEP)
    }

    /// The bell.
    #[inline]
    pub fn bell(&self) -> &AtomicU32 {
        // SAFETY: a word of the segment, which lives as long as the board.
        unsafe { &*self.bell }
    }

    /// The doorbell's bits.
    pub fn bits(&self) -> &[AtomicU64] {
        self.segment.words(BITS, bit_words(self.ranks))
    }
}
