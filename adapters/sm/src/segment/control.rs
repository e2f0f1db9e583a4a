//! A rank's control segment: its owner's identity, the word that the owner sleeps on, and the owner's doorbell.

use std::path::Path;

use towline_core::rail::Lost;

use super::file::Segment;
use super::layout::{
    BARRIER, CLOSED, DOORBELL, DOORBELL_BITS, MAGIC, MAGIC_AT, NONCE, PID, PID_NAMESPACE, RANKS, SLEEP, START_TIME,
    control_bytes, departures, doorbell_words,
};
use crate::atomics::{AtomicU32, AtomicU64, Ordering};
use crate::error::OpenError;
use crate::host::Process;

/// The control segment of this rank or of a peer.
#[derive(Debug)]
pub struct ControlSegment {
    /// The doorbell's counter, which is polled: its address is kept, so that it is not looked up each time.
    doorbell: *const AtomicU32,
    segment: Segment,
    /// Ranks that the doorbell has bits for, as checked when the segment was mapped.
    ranks: u32,
}

// SAFETY: `doorbell` is an address in the segment that the struct owns, reached as an atomic.
unsafe impl Send for ControlSegment {}

impl ControlSegment {
    /// Makes this rank's own.
    pub fn create(path: &Path, ranks: u32, owner: &Process, nonce: u64, barrier: bool) -> Result<Self, OpenError> {
        let segment = Segment::create(path, control_bytes(ranks))?;
        let write = |at, value| segment.word(at).store(value, Ordering::Relaxed);
        write(PID, u64::from(owner.pid));
        write(START_TIME, owner.start_time);
        write(PID_NAMESPACE, owner.pid_namespace);
        write(NONCE, nonce);
        write(RANKS, u64::from(ranks));
        write(BARRIER, u64::from(barrier));
        segment.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        Ok(Self { doorbell: segment.half(DOORBELL), segment, ranks })
    }

    /// Maps a peer's, if its doorbell has bits for `rank`.
    pub fn open(path: &Path, rank: u32) -> Result<Self, OpenError> {
        let malformed = || OpenError::Malformed(path.to_owned());
        let segment = Segment::open(path, control_bytes(1))?;
        if segment.word(MAGIC_AT).load(Ordering::Acquire) != MAGIC {
            return Err(malformed());
        }
        let ranks = u32::try_from(segment.word(RANKS).load(Ordering::Relaxed)).map_err(|_| malformed())?;
        if rank >= ranks || segment.len() < control_bytes(ranks) {
            return Err(malformed());
        }
        Ok(Self { doorbell: segment.half(DOORBELL), segment, ranks })
    }

    /// The incarnation of its owner.
    pub fn nonce(&self) -> u64 {
        self.segment.word(NONCE).load(Ordering::Relaxed)
    }

    /// The owner's process.
    pub fn owner(&self) -> Process {
        let read = |at| self.segment.word(at).load(Ordering::Relaxed);
        Process { pid: read(PID) as u32, start_time: read(START_TIME), pid_namespace: read(PID_NAMESPACE) }
    }

    /// Whether the owner makes other processes pass a barrier before it sleeps.
    pub fn has_barrier(&self) -> bool {
        self.segment.word(BARRIER).load(Ordering::Relaxed) == 1
    }

    /// How the owner closed; `None` while it is open. Once this is not `None`, all frames that the owner sent are visible.
    pub fn closed(&self) -> Option<Lost> {
        match self.segment.word(CLOSED).load(Ordering::Acquire) {
            0 => None,
            1 => Some(Lost::Closed),
            _ => Some(Lost::Broken),
        }
    }

    /// Tells peers that the owner sends no more: it has closed normally if `cleanly`, else it failed.
    pub fn close(&self, cleanly: bool) {
        self.segment.word(CLOSED).store(if cleanly { 1 } else { 2 }, Ordering::Release);
    }

    /// The word that the owner sleeps on.
    pub fn sleep(&self) -> &AtomicU32 {
        self.segment.half(SLEEP)
    }

    /// The doorbell's counter.
    #[inline]
    pub fn doorbell(&self) -> &AtomicU32 {
        // SAFETY: a word of the segment, which lives as long as `self`.
        unsafe { &*self.doorbell }
    }

    /// The doorbell's bits.
    pub fn doorbell_bits(&self) -> &[AtomicU64] {
        self.segment.words(DOORBELL_BITS, doorbell_words(self.ranks))
    }

    /// The owner's departures from a rank: [`LEFT`](super::layout::LEFT), [`GIVEN_UP`](super::layout::GIVEN_UP), both, or 0.
    pub fn departure(&self, rank: u32) -> u64 {
        self.departure_word(rank).map_or(0, |word| word.load(Ordering::Acquire) >> (rank % 32 * 2) & 3)
    }

    /// Adds to the owner's departures from a rank. The rank's doorbell is rung afterwards.
    pub fn depart(&self, rank: u32, how: u64) {
        if let Some(word) = self.departure_word(rank) {
            word.fetch_or((how & 3) << (rank % 32 * 2), Ordering::Release);
        }
    }

    /// Withdraws the owner's departures from a rank.
    pub fn return_to(&self, rank: u32) {
        if let Some(word) = self.departure_word(rank) {
            word.fetch_and(!(3 << (rank % 32 * 2)), Ordering::Release);
        }
    }

    fn departure_word(&self, rank: u32) -> Option<&AtomicU64> {
        self.segment.words(departures(self.ranks), doorbell_words(self.ranks)).get(rank as usize / 32)
    }
}
