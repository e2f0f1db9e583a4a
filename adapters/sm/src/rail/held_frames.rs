//! The frames that the engine holds.

use towline_core::rail::FrameId;

/// A held frame, in its ring.
#[derive(Clone, Copy, Debug)]
pub struct HeldFrame {
    id: u64,
    /// Number of its incoming ring.
    pub ring: u32,
    /// Position, in slots, where it begins.
    pub position: u32,
    /// Its length in bytes.
    pub len: u32,
}

/// Up to 32 held frames. A frame's id is made of its index here, its ring and its position: a stale or invented id is not found.
#[derive(Debug)]
pub struct HeldFrames {
    entries: [HeldFrame; 32],
    /// Bit set of the free entries.
    free: u32,
    /// Bit set of the entries that may be used.
    all: u32,
}

impl HeldFrames {
    /// Room for `count` frames, 1 to 32.
    pub const fn new(count: u32) -> Self {
        let all = u32::MAX >> (32 - count);
        Self { entries: [HeldFrame { id: 0, ring: 0, position: 0, len: 0 }; 32], free: all, all }
    }

    /// Whether no further frame can be held.
    #[inline]
    pub const fn is_full(&self) -> bool {
        self.free == 0
    }

    /// Adds a frame; there must be room.
    #[inline]
    pub fn hold(&mut self, ring: u32, position: u32, len: u32) -> FrameId {
        let index = self.free.trailing_zeros();
        let id = u64::from(position) << 32 | u64::from(ring) << 5 | u64::from(index & 31);
        if let Some(entry) = self.entries.get_mut(index as usize) {
            *entry = HeldFrame { id, ring, position, len };
            self.free &= self.free - 1;
        }
        FrameId(id)
    }

    /// The frame with this id, if it is held.
    #[inline]
    pub fn find(&self, id: FrameId) -> Option<&HeldFrame> {
        let index = (id.0 & 31) as u32;
        let entry = self.entries.get(index as usize)?;
        (entry.id == id.0 && self.all & !self.free & 1 << index != 0).then_some(entry)
    }

    /// Removes a frame; returns it if it was held.
    #[inline]
    pub fn remove(&mut self, id: FrameId) -> Option<HeldFrame> {
        let held = *self.find(id)?;
        self.free |= 1 << (id.0 & 31);
        Some(held)
    }

    /// Removes all frames of a ring.
    pub fn remove_ring(&mut self, ring: u32) {
        for index in 0..32 {
            if self.all & !self.free & 1 << index != 0 && self.entries[index as usize].ring == ring {
                self.free |= 1 << index;
            }
        }
    }

    /// Position of the oldest held frame of a ring whose receiver has come to `position`; `position` if none is held.
    pub fn oldest(&self, ring: u32, position: u32) -> u32 {
        let held = |index: &u32| self.all & !self.free & 1 << index != 0;
        let of_ring =
            (0..32).filter(held).filter_map(|index| self.entries.get(index as usize)).filter(|e| e.ring == ring);
        let furthest = of_ring.map(|entry| position.wrapping_sub(entry.position)).max().unwrap_or(0);
        position.wrapping_sub(furthest)
    }
}
