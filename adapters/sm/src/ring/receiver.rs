//! The receiving side of a ring.

use super::format::{
    MIN_SHORT, PAD, PREFIX, ProtocolViolation, RingMemory, SLOT, beyond_short, meta, sequence, slots_for,
};
use crate::atomics::{AtomicU64, Ordering};

/// The header of a frame that was found at the receiver's position; its length and tag are unchecked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PendingFrame {
    /// The position.
    position: u32,
    /// Length and tag as the sender wrote them.
    meta: u32,
}

impl PendingFrame {
    /// The frame at a receiver's position, if there is one; `header` is the first word of the slot there.
    #[inline(always)]
    pub fn look(position: u32, header: &AtomicU64) -> Option<Self> {
        let word = header.load(Ordering::Acquire);
        (word as u32 == sequence(position)).then_some(Self { position, meta: (word >> 32) as u32 })
    }
}

/// A frame that was taken from the ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceivedFrame {
    /// Position, in slots, where it begins.
    pub position: u32,
    /// Its length in bytes, checked against the longest frame and the ring's end.
    pub len: u32,
    /// Its tag.
    pub tag: u8,
}

/// The receiving side's private state.
#[derive(Debug)]
pub struct Receiver {
    position: u32,
    /// Slots are returned to the sender when the receiver has come to this position, a quarter of the ring after the slots that
    /// were returned last.
    credit_due: u32,
    slots: u32,
    /// A quarter of the slots.
    quarter: u32,
    /// Bytes of the longest frame.
    limit: u32,
    /// The last frame that [`take_long`](Self::take_long) has taken: the position behind it, and its slots. Not older than the
    /// last return of slots, so no other frame of a correct peer ends at this position.
    last_long: (u32, u32),
}

impl Receiver {
    /// A receiver without a ring.
    pub const NONE: Self = Self { position: 0, credit_due: 0, slots: 0, quarter: 0, limit: 0, last_long: (0, 1) };

    /// The receiver of a ring of `slots` slots whose frames have up to `limit` bytes.
    pub const fn new(slots: u32, limit: u32, start: u32) -> Self {
        let quarter = slots / 4;
        let credit_due = start.wrapping_add(quarter);
        Self { position: start, credit_due, slots, quarter, limit, last_long: (start, 1) }
    }

    /// Position, in slots, where the next frame begins.
    #[inline]
    pub const fn position(&self) -> u32 {
        self.position
    }

    /// Whether there is a ring at all.
    #[inline]
    pub const fn exists(&self) -> bool {
        self.slots != 0
    }

    /// The next frame, unchecked; `None` if there is none.
    #[inline]
    pub fn peek(&self, memory: &impl RingMemory) -> Option<PendingFrame> {
        PendingFrame::look(self.position, memory.header(self.position))
    }

    /// Takes the frame that `peek` found just now and moves behind it; `Ok(None)` for padding. The frame's slots belong to the
    /// receiver until [`return_credit`](Self::return_credit).
    ///
    /// # Errors
    /// [`ProtocolViolation`] where it cannot be a frame of this ring; the position does not move then.
    #[inline]
    pub fn take(&mut self, pending: PendingFrame) -> Result<Option<ReceivedFrame>, ProtocolViolation> {
        let PendingFrame { position, meta } = pending;
        let (len, tag) = (meta & PAD, (meta >> 24) as u8);
        // A frame that fits one slot needs no check: it cannot reach over the ring's end, and no ring has a shorter limit.
        if len as usize <= SLOT - PREFIX {
            self.position = position.wrapping_add(1);
            return Ok(Some(ReceivedFrame { position, len, tag }));
        }
        let slots = self.measure(meta)?;
        self.position = position.wrapping_add(slots);
        if len == PAD {
            return Ok(None);
        }
        Ok(Some(ReceivedFrame { position, len, tag }))
    }

    /// As `take`, for a frame with `tag` in one slot, of [`MIN_SHORT`](super::MIN_SHORT) bytes at least, after which no credit is
    /// due. Returns how many bytes it has beyond those. `None` for any other frame, and the position does not move.
    #[inline(always)]
    pub fn take_short(&mut self, pending: PendingFrame, tag: u8) -> Option<u32> {
        let PendingFrame { position, meta } = pending;
        let (more, next) = (beyond_short(meta, tag)?, position.wrapping_add(1));
        if self.owes_credit(next) {
            return None;
        }
        self.position = next;
        Some(more)
    }

    /// As [`take_short`](Self::take_short), for a frame in any number of slots.
    #[inline]
    pub fn take_long(&mut self, pending: PendingFrame, tag: u8) -> Option<u32> {
        let PendingFrame { position, meta } = pending;
        let more = meta.wrapping_sub(self::meta(MIN_SHORT, tag));
        if more > self.limit.saturating_sub(MIN_SHORT) {
            return None;
        }
        let slots = slots_for(more.wrapping_add(MIN_SHORT));
        let next = position.wrapping_add(slots);
        if slots > self.rest() || self.owes_credit(next) {
            return None;
        }
        self.position = next;
        self.last_long = (next, slots);
        Some(more)
    }

    /// As `take`, for a frame of at most `most` bytes whose tag is not `except`. `None` for any other frame, and the position does not
    /// move.
    #[inline]
    pub fn take_fitting(&mut self, pending: PendingFrame, except: u8, most: usize) -> Option<ReceivedFrame> {
        let PendingFrame { position, meta } = pending;
        let (len, tag) = (meta & PAD, (meta >> 24) as u8);
        if tag == except || len as usize > most {
            return None;
        }
        let slots = if len as usize <= SLOT - PREFIX { 1 } else { self.measure(meta).ok()? };
        if len == PAD {
            return None;
        }
        self.position = position.wrapping_add(slots);
        Some(ReceivedFrame { position, len, tag })
    }

    /// Reads once more the frame that [`take_short`](Self::take_short) or [`take_long`](Self::take_long) has just taken. `None` if
    /// its slots were returned, or if the sender has overwritten its header word meanwhile, which no correct sender does.
    pub fn last_taken(&self, memory: &impl RingMemory) -> Option<ReceivedFrame> {
        let slots = if self.last_long.0 == self.position { self.last_long.1 } else { 1 };
        let position = self.position.wrapping_sub(slots);
        let PendingFrame { meta, .. } = PendingFrame::look(position, memory.header(position))?;
        let (len, tag) = (meta & PAD, (meta >> 24) as u8);
        let is_kept = self.position.wrapping_sub(self.credit_due.wrapping_sub(self.quarter)) >= slots;
        (is_kept && len <= self.limit && slots_for(len) == slots).then_some(ReceivedFrame { position, len, tag })
    }

    /// Slots from the receiver's position to the ring's end.
    #[inline]
    const fn rest(&self) -> u32 {
        self.slots.wrapping_sub(self.position & self.slots.wrapping_sub(1))
    }

    /// Slots of a frame that is longer than one slot, or of padding.
    #[inline]
    fn measure(&self, meta: u32) -> Result<u32, ProtocolViolation> {
        let len = meta & PAD;
        let rest = self.rest();
        if len <= self.limit {
            let slots = slots_for(len);
            return if slots <= rest { Ok(slots) } else { Err(ProtocolViolation) };
        }
        // A correct peer never pads a whole lap. With such padding, a hostile peer could keep the receiver in one poll forever.
        if meta == PAD && rest != self.slots { Ok(rest) } else { Err(ProtocolViolation) }
    }

    /// Whether the slots before `position` that were not returned to the sender yet make up a quarter of the ring.
    #[inline(always)]
    pub fn owes_credit(&self, position: u32) -> bool {
        position.wrapping_sub(self.credit_due).cast_signed() >= 0
    }

    /// Returns the slots before `position` to the sender if they make up a quarter of the ring. Returns whether it did.
    #[inline(always)]
    pub fn return_credit(&mut self, memory: &impl RingMemory, position: u32) -> bool {
        if !self.owes_credit(position) {
            return false;
        }
        self.credit_due = position.wrapping_add(self.quarter);
        self.last_long = (position, 1);
        // Release: our reads of those slots come first.
        memory.credit().store(position, Ordering::Release);
        true
    }
}
