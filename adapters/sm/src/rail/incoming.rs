//! A ring from a peer.

use std::path::Path;

use towline_core::rail::{HEAD, Peer};

use crate::atomics::Ordering;
use crate::error::OpenError;
use crate::ring::{MAX_LEN, MAX_SLOTS, Receiver, SLOT, START, slots_for};
use crate::segment::file::Segment;
use crate::segment::layout::{
    EPOCH_ADDRESS, FIRST_EPOCH, LIMIT, MAGIC, MAGIC_AT, NONCE, PAGE, PROBE, RING_BYTES, TO_NONCE,
};
use crate::segment::slots::Slots;
use crate::single_copy::read::RemoteReader;

/// A ring from a peer.
#[derive(Debug)]
pub struct Incoming {
    pub receiver: Receiver,
    pub slots: Slots,
    /// The sender, by the engine's number.
    pub peer: Peer,
    /// Frames of this ring that the engine holds.
    pub held: u32,
    /// Position of the receiver when rings were last sorted into active and quiet ones.
    pub position_when_sorted: u32,
    /// For single copy: reads the peer's memory, if that works. Only in rings for short frames.
    pub reader: Option<RemoteReader>,
    segment: Option<Segment>,
}

impl Incoming {
    /// No ring yet.
    pub fn none() -> Self {
        Self {
            receiver: Receiver::NONE,
            slots: Slots::none(),
            peer: Peer(0),
            held: 0,
            position_when_sorted: 0,
            reader: None,
            segment: None,
        }
    }

    /// Maps a ring that a peer announced. `from` and `to` are the incarnations of its sender and receiver; `Ok(None)` where the
    /// ring is between others.
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
        Ok(Some(Self {
            receiver: Receiver::new(slots, limit as u32, START),
            slots: memory,
            peer,
            held: 0,
            position_when_sorted: START,
            reader: None,
            segment: Some(segment),
        }))
    }

    /// Removes the name of the segment's file, unless another file has it now.
    pub fn remove_name(&self, path: &Path) {
        if let Some(segment) = &self.segment {
            segment.remove_name(path);
        }
    }

    /// Whether there is a segment.
    pub fn exists(&self) -> bool {
        self.segment.is_some()
    }

    /// Address and first value of the sender's epoch word.
    pub fn epoch(&self) -> (u64, u64) {
        let read = |at| self.segment.as_ref().map_or(0, |segment| segment.word(at).load(Ordering::Relaxed));
        (read(EPOCH_ADDRESS), read(FIRST_EPOCH))
    }

    /// Tells the sender the result of the probe: whether we can read its memory.
    pub fn set_probe(&self, result: u64) {
        if let Some(segment) = &self.segment {
            segment.word(PROBE).store(result, Ordering::Relaxed);
        }
    }

    /// Whether there is a frame in the ring.
    #[inline]
    pub fn has_frame(&self) -> bool {
        self.receiver.peek(&self.slots).is_some()
    }
}
