//! The two ends of a ring as a rail keeps them: outgoing and incoming.

use std::path::Path;

use towline_core::rail::{HEAD, Peer};

use crate::atomics::{AtomicU32, Ordering};
use crate::error::OpenError;
use crate::host::process::Process;
use crate::segment::layout::{
    BORN, LIMIT, MAGIC, MAGIC_AT, NONCE, PAGE, PID, PID_SPACE, PLEDGE, PLEDGE_AT, READABLE, RING_BYTES, TO_BORN,
    TO_NONCE, TO_PID,
};
use crate::segment::slots::Slots;
use crate::ring::{MAX_LEN, MAX_SLOTS, Receiver, SLOT, START, Sender, Shared, slots_for};
use crate::segment::file::Segment;
use crate::single_copy::sender::{Lender, Reader, UNTRIED};
use crate::sleep;

/// Stands for the sleep word of a peer that must always be looked after by the slow path.
static ALWAYS: AtomicU32 = AtomicU32::new(sleep::ON_FUTEX);

/// Who makes a ring, and for whom.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The sender and its incarnation.
    pub from: (Process, u64),
    /// The receiver and its incarnation.
    pub to: (Process, u64),
}

/// The two rings of one lane between this rank and a peer.
#[derive(Debug)]
pub struct Ring {
    pub incoming: Incoming,
    pub outgoing: Outgoing,
}

impl Ring {
    /// No rings yet.
    pub fn none() -> Self {
        Self { incoming: Incoming::none(), outgoing: Outgoing::none() }
    }
}

/// A ring to a peer.
#[derive(Debug)]
pub struct Outgoing {
    pub sender: Sender,
    pub slots: Slots,
    /// One more than the longest frame that may go now; 0 sends all to the slow path.
    pub bound: u32,
    /// Slots that only control frames may take.
    pub kept: u32,
    /// Whether someone was told `Busy` since credit came last.
    pub starved: bool,
    /// The peer's sleep word, or one that always says "look closer".
    watch: *const AtomicU32,
    /// What it takes to lend memory to the peer; in rings for short messages.
    pub lender: Option<Lender>,
    segment: Option<Segment>,
}

// SAFETY: the addresses are of process-wide mappings, reached through atomics.
unsafe impl Send for Outgoing {}

impl Outgoing {
    /// No ring yet.
    pub fn none() -> Self {
        let (sender, slots, watch) = (Sender::NONE, Slots::none(), &raw const ALWAYS);
        Self { sender, slots, bound: 0, kept: 0, starved: false, watch, lender: None, segment: None }
    }

    /// Makes the ring's segment; `kept` as the field.
    pub fn create(path: &Path, ends: Ends, bytes: u32, limit: u32, kept: u32) -> Result<Self, OpenError> {
        let segment = Segment::create(path, PAGE + bytes as usize)?;
        let write = |at, value| segment.word(at).store(value, Ordering::Relaxed);
        write(PID, u64::from(ends.from.0.pid));
        write(BORN, ends.from.0.born);
        write(PID_SPACE, ends.from.0.space);
        write(NONCE, ends.from.1);
        write(RING_BYTES, u64::from(bytes));
        write(LIMIT, u64::from(limit));
        write(TO_PID, u64::from(ends.to.0.pid));
        write(TO_BORN, ends.to.0.born);
        write(TO_NONCE, ends.to.1);
        let slots = bytes / SLOT as u32;
        // SAFETY: the segment is kept in the same struct, and dropped with it.
        let memory = unsafe { Slots::of(&segment, slots) };
        memory.credit().store(START, Ordering::Relaxed);
        segment.word(MAGIC_AT).store(MAGIC, Ordering::Release);
        Ok(Self {
            sender: Sender::new(slots, START),
            slots: memory,
            bound: limit + 1,
            kept,
            starved: false,
            watch: &raw const ALWAYS,
            lender: None,
            segment: Some(segment),
        })
    }

    /// Has every publication look at `word` from now on.
    ///
    /// # Safety
    /// The word outlives this ring's use, or another is named before.
    pub unsafe fn watch(&mut self, word: &AtomicU32) {
        self.watch = word;
    }

    /// Whether the receiver may be asleep; to be asked after each publication.
    #[inline]
    pub fn reader_may_sleep(&self) -> bool {
        // SAFETY: a static, or a word that the caller of `watch` vouched for.
        sleep::may_sleep(unsafe { &*self.watch })
    }

    /// Whether there is a segment.
    pub fn exists(&self) -> bool {
        self.segment.is_some()
    }

    /// Takes in what it takes to lend memory, before the receiver is told of the ring.
    pub fn pledge(&mut self, lender: Lender) {
        if let Some(segment) = &self.segment {
            let (at, pledge) = lender.pledge();
            segment.word(PLEDGE).store(pledge, Ordering::Relaxed);
            // The doorbell, rung afterwards, makes it visible.
            segment.word(PLEDGE_AT).store(at, Ordering::Relaxed);
            self.lender = Some(lender);
        }
    }

    /// Whether the receiver can read our memory: what it says.
    pub fn answer(&self) -> u64 {
        self.segment.as_ref().map_or(UNTRIED, |segment| segment.word(READABLE).load(Ordering::Relaxed))
    }
}

/// A ring from a peer.
#[derive(Debug)]
pub struct Incoming {
    pub receiver: Receiver,
    pub slots: Slots,
    /// Who sends here, as the engine numbers it.
    pub peer: Peer,
    /// Frames of this ring that the engine holds.
    pub held: u32,
    /// Where the receiver stood when rings were last sorted into hot and warm.
    pub seen: u32,
    /// What it takes to read the peer's memory, if that works; in rings for short messages.
    pub reader: Option<Reader>,
    segment: Option<Segment>,
}

impl Incoming {
    /// No ring yet.
    pub fn none() -> Self {
        let (receiver, slots) = (Receiver::NONE, Slots::none());
        Self { receiver, slots, peer: Peer(0), held: 0, seen: 0, reader: None, segment: None }
    }

    /// Maps a ring that a peer announced, if it is between these incarnations; `Ok(None)` if not.
    pub fn open(path: &Path, from: u64, to: u64, peer: Peer) -> Result<Option<Self>, OpenError> {
        let malformed = || OpenError::Malformed(path.to_owned());
        let segment = Segment::open(path, PAGE + SLOT)?;
        if segment.word(MAGIC_AT).load(Ordering::Acquire) != MAGIC {
            return Err(malformed());
        }
        let read = |at| segment.word(at).load(Ordering::Relaxed);
        if (read(NONCE), read(TO_NONCE)) != (from, to) {
            return Ok(None);
        }
        let (bytes, limit) = (read(RING_BYTES), read(LIMIT));
        let slots = bytes / SLOT as u64;
        if !bytes.is_power_of_two() || !(8..=u64::from(MAX_SLOTS)).contains(&slots) {
            return Err(malformed());
        }
        let (slots, fits) = (slots as u32, segment.len() as u64 >= PAGE as u64 + bytes);
        if !fits || limit < HEAD as u64 || limit > u64::from(MAX_LEN) || slots_for(limit as u32) > slots {
            return Err(malformed());
        }
        // SAFETY: the segment is kept in the same struct, and dropped with it.
        let memory = unsafe { Slots::of(&segment, slots) };
        let receiver = Receiver::new(slots, limit as u32, START);
        Ok(Some(Self { receiver, slots: memory, peer, held: 0, seen: START, reader: None, segment: Some(segment) }))
    }

    /// Whether there is a segment.
    pub fn exists(&self) -> bool {
        self.segment.is_some()
    }

    /// Where the sender's pledge is, and what it said at first.
    pub fn pledge(&self) -> (u64, u64) {
        let read = |at| self.segment.as_ref().map_or(0, |segment| segment.word(at).load(Ordering::Relaxed));
        (read(PLEDGE_AT), read(PLEDGE))
    }

    /// Tells the sender whether we can read its memory.
    pub fn tell(&self, answer: u64) {
        if let Some(segment) = &self.segment {
            segment.word(READABLE).store(answer, Ordering::Relaxed);
        }
    }

    /// Whether a frame waits.
    #[inline]
    pub fn waits(&self) -> bool {
        self.receiver.peek(&self.slots).is_some()
    }
}
