//! The sending side of a ring.

use super::format::{PAD, ProtocolViolation, RingMemory, sequence};
use crate::atomics::{AtomicU64, Ordering};

/// The sending side's private state.
#[derive(Debug)]
pub struct Sender {
    position: u32,
    /// One lap ahead of the receiver's position as far as known: slots before this position are free.
    end: u32,
    /// Slots of the ring, a power of two; 0 before there is a ring.
    slots: u32,
    /// For this many more slots, the place of the next header word may hold payload that looks like one.
    dirty: u32,
    /// Where the first frame after one of the other side begins.
    answer_at: u32,
}

impl Sender {
    /// A sender without a ring: every reservation fails.
    pub const NONE: Self = Self { position: 0, end: 0, slots: 0, dirty: 0, answer_at: 0 };

    /// The sender of a new ring whose memory is zero. `slots` is a power of two, at most [`MAX_SLOTS`](super::MAX_SLOTS).
    pub const fn new(slots: u32, start: u32) -> Self {
        Self { position: start, end: start.wrapping_add(slots), slots, dirty: 0, answer_at: 0 }
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

    /// Reserves room for a frame of `slots` slots, from credit that is known already. `reserved` more slots must stay free.
    /// Returns the frame's position, which is void after another reservation or `pad`. `None` where there is no room, or the
    /// frame would run over the ring's end. `slots` and `reserved` are at most [`MAX_SLOTS`](super::MAX_SLOTS).
    #[inline(always)]
    pub fn reserve(&mut self, slots: u32, reserved: u32) -> Option<u32> {
        let index = self.position & self.slots.wrapping_sub(1);
        if !self.has_room(slots, reserved) || (slots > 1 && index + slots > self.slots) {
            return None;
        }
        if slots > 1 {
            self.dirty = self.dirty.max(self.slots + slots);
        }
        Some(self.position)
    }

    /// Reads the receiver's credit. Returns whether it has changed.
    ///
    /// # Errors
    /// [`ProtocolViolation`] where the receiver returned slots that were never sent.
    pub fn refresh(&mut self, memory: &impl RingMemory) -> Result<bool, ProtocolViolation> {
        // Acquire: the receiver's reads of the slots that it returns come before our writes to them.
        let credit = memory.credit().load(Ordering::Acquire);
        if self.position.wrapping_sub(credit) > self.slots {
            return Err(ProtocolViolation);
        }
        let end = credit.wrapping_add(self.slots);
        let news = end != self.end;
        self.end = end;
        Ok(news)
    }

    /// Whether more than `reserved` slots stay free behind a frame of `slots` slots: `reserved`, and that of the next header word.
    #[inline(always)]
    const fn has_room(&self, slots: u32, reserved: u32) -> bool {
        // All are at most `MAX_SLOTS`, so the difference is a small number; below 0 if the frame does not fit at all.
        let free = self.end.wrapping_sub(self.position.wrapping_add(slots));
        free.cast_signed() > reserved.cast_signed()
    }

    /// Fills the rest of the lap with padding where a frame of `slots` slots would run over the ring's end, provided
    /// there is room for both and `reserved` more.
    pub fn pad(&mut self, memory: &impl RingMemory, slots: u32, reserved: u32) {
        let rest = self.slots - (self.position & self.slots.wrapping_sub(1));
        if slots > rest && self.has_room(rest + slots, reserved) {
            self.dirty = self.dirty.max(self.slots + rest);
            self.publish(memory, rest, PAD);
        }
    }

    /// Makes visible the frame that was reserved last and has been written since. `slots` is as reserved; `meta` is made by
    /// [`meta`](super::meta).
    #[inline(always)]
    pub fn publish(&mut self, memory: &impl RingMemory, slots: u32, meta: u32) {
        self.publish_at(memory, self.position, memory.header(self.position), slots, meta);
    }

    /// As [`publish`](Self::publish), for a caller that has kept the sender's position and the first word of the slot there, so
    /// that neither is looked up again after the stores of the frame's bytes.
    #[inline(always)]
    pub fn publish_at(&mut self, memory: &impl RingMemory, position: u32, header: &AtomicU64, slots: u32, meta: u32) {
        let next = position.wrapping_add(slots);
        if self.dirty != 0 {
            self.dirty = self.dirty.saturating_sub(slots);
            let word = memory.header(next);
            // Not unconditionally: the line may be in the other side's cache, and the stores that follow would wait for it.
            if word.load(Ordering::Relaxed) as u32 == sequence(next) {
                word.store(0, Ordering::Relaxed);
            }
        }
        let word = u64::from(meta) << 32 | u64::from(sequence(position));
        // Release: the frame's bytes and the cleared next word come first.
        header.store(word, Ordering::Release);
        self.position = next;
    }

    /// Notes that a frame of the other side has arrived. Returns the position.
    #[inline(always)]
    pub const fn expect_answer(&mut self) -> u32 {
        self.answer_at = self.position;
        self.position
    }

    /// Whether the frame at `position` is the first one after a frame of the other side.
    #[inline(always)]
    pub const fn is_answer(&self, position: u32) -> bool {
        self.answer_at == position
    }
}
