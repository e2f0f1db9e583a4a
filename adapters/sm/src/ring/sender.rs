//! The sending side of a ring.

use super::format::{PAD, ProtocolViolation, RingMemory, sequence};
use crate::atomics::{AtomicU64, Ordering};

/// The sending side's private state.
#[derive(Debug)]
pub struct Sender {
    position: u32,
    /// The receiver's position as far as known.
    credit: u32,
    /// Slots of the ring, a power of two; 0 before there is a ring.
    slots: u32,
    /// For this many more slots, the place of the next header word may hold payload, so the sender clears it.
    dirty: u32,
}

impl Sender {
    /// A sender without a ring: every reservation fails.
    pub const NONE: Self = Self { position: 0, credit: 0, slots: 0, dirty: 0 };

    /// The sender of a new ring whose memory is zero. `slots` is a power of two, at most [`MAX_SLOTS`](super::MAX_SLOTS).
    pub const fn new(slots: u32, start: u32) -> Self {
        Self { position: start, credit: start, slots, dirty: 0 }
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
        let used = self.position.wrapping_sub(self.credit);
        let index = self.position & self.slots.wrapping_sub(1);
        if used + slots + reserved >= self.slots || index + slots > self.slots {
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
        let news = credit != self.credit;
        self.credit = credit;
        Ok(news)
    }

    /// Fills the rest of the lap with padding where a frame of `slots` slots would run over the ring's end, provided
    /// there is room for both and `reserved` more.
    pub fn pad(&mut self, memory: &impl RingMemory, slots: u32, reserved: u32) {
        let used = self.position.wrapping_sub(self.credit);
        let rest = self.slots - (self.position & self.slots.wrapping_sub(1));
        if slots > rest && used + rest + slots + reserved < self.slots {
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
            memory.header(next).store(0, Ordering::Relaxed);
        }
        let word = u64::from(meta) << 32 | u64::from(sequence(position));
        // Release: the frame's bytes and the cleared next word come first.
        header.store(word, Ordering::Release);
        self.position = next;
    }
}
