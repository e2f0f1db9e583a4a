//! The frames that the engine holds.

use towline_core::rail::FrameId;

/// A frame in its ring.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    id: u64,
    /// Which incoming ring.
    pub ring: u32,
    /// Where it begins.
    pub position: u32,
    /// Its bytes.
    pub len: u32,
}

/// Up to 32 held frames. Names are the place here, the ring and the position: a stale or invented one is not found.
#[derive(Debug)]
pub struct Kept {
    entries: [Held; 32],
    /// Which places are free.
    free: u32,
    all: u32,
}

impl Kept {
    /// Room for `count` frames, 1 to 32.
    pub const fn new(count: u32) -> Self {
        let all = u32::MAX >> (32 - count);
        Self { entries: [Held { id: 0, ring: 0, position: 0, len: 0 }; 32], free: all, all }
    }

    /// Whether no further frame can be held.
    #[inline]
    pub const fn is_full(&self) -> bool {
        self.free == 0
    }

    /// Holds a frame; there must be room.
    #[inline]
    pub fn hold(&mut self, ring: u32, position: u32, len: u32) -> FrameId {
        let place = self.free.trailing_zeros();
        let id = u64::from(position) << 32 | u64::from(ring) << 5 | u64::from(place & 31);
        if let Some(entry) = self.entries.get_mut(place as usize) {
            *entry = Held { id, ring, position, len };
            self.free &= self.free - 1;
        }
        FrameId(id)
    }

    /// The frame of that name, if it is held.
    #[inline]
    pub fn find(&self, id: FrameId) -> Option<&Held> {
        let place = (id.0 & 31) as u32;
        let entry = self.entries.get(place as usize)?;
        (entry.id == id.0 && self.all & !self.free & 1 << place != 0).then_some(entry)
    }

    /// Lets go of a frame; returns it if it was held.
    #[inline]
    pub fn drop(&mut self, id: FrameId) -> Option<Held> {
        let held = *self.find(id)?;
        self.free |= 1 << (id.0 & 31);
        Some(held)
    }

    /// Lets go of all frames of a ring.
    pub fn drop_ring(&mut self, ring: u32) {
        for place in 0..32 {
            if self.all & !self.free & 1 << place != 0 && self.entries[place as usize].ring == ring {
                self.free |= 1 << place;
            }
        }
    }

    /// Where the oldest held frame of a ring begins whose receiver has come to `position`; `position` if none is held.
    pub fn oldest(&self, ring: u32, position: u32) -> u32 {
        let held = |place: &u32| self.all & !self.free & 1 << place != 0;
        let mine = (0..32).filter(held).filter_map(|place| self.entries.get(place as usize)).filter(|e| e.ring == ring);
        let furthest = mine.map(|entry| position.wrapping_sub(entry.position)).max().unwrap_or(0);
        position.wrapping_sub(furthest)
    }
}
