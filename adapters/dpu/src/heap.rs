//! Which parts of the buffers are in use.

use offset_allocator::{Allocation, Allocator};
use towline_window::command::Body;

/// Bytes of a unit. Parts are multiples of it, so that no two messages share a line.
const UNIT: u64 = 64;

/// Units of the longest part that is kept when it is returned, for the next one of the same length.
const KEPT_UNITS: usize = 16;
/// The most parts of each length that are kept.
const KEPT: usize = 64;

/// A part of the buffers.
#[derive(Clone, Copy)]
pub struct Part {
    allocation: Allocation,
    /// Where it is.
    pub body: Body,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Part").field(&self.body).finish()
    }
}

/// The buffers of a window.
pub struct Heap {
    /// Where the buffers begin, and how long they are.
    begin: u64,
    bytes: u64,
    /// The longest part that the allocator gives, which is up to an eighth shorter than the buffers.
    longest: u64,
    units: Allocator,
    /// Returned parts by their units, less one, which the allocator still has as taken. Short messages come often, and the allocator
    /// takes several hundred instructions for each.
    kept: [Vec<Allocation>; KEPT_UNITS],
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heap").field("begin", &self.begin).field("longest", &self.longest).finish_non_exhaustive()
    }
}

/// The bytes that a part of this length takes.
pub const fn taken(bytes: u64) -> u64 {
    let units = bytes.div_ceil(UNIT);
    if units == 0 { UNIT } else { units.saturating_mul(UNIT) }
}

/// There is no room for a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoRoom {
    /// Now, since other parts are in use.
    Now,
    /// Ever.
    Ever,
}

impl Heap {
    /// The buffers that begin at an offset.
    pub fn new(begin: u64, bytes: u64) -> Self {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
        let units = Allocator::new(units);
        let longest = u64::from(units.storage_report().largest_free_region) * UNIT;
        Self { begin, bytes, longest, units, kept: Default::default() }
    }

    /// Takes a part of that many bytes.
    ///
    /// # Errors
    /// [`NoRoom`].
    #[inline]
    pub fn take(&mut self, bytes: u64) -> Result<Part, NoRoom> {
        if bytes > self.longest {
            return Err(NoRoom::Ever);
        }
        match self.kept_of(bytes).and_then(Vec::pop) {
            Some(allocation) => Ok(self.part(allocation, bytes)),
            None => self.take_new(bytes),
        }
    }

    #[cold]
    fn take_new(&mut self, bytes: u64) -> Result<Part, NoRoom> {
        let units = u32::try_from(taken(bytes) / UNIT).map_err(|_| NoRoom::Ever)?;
        let mut allocation = self.units.allocate(units);
        if allocation.is_none() {
            for kept in self.kept.iter_mut().flat_map(|kept| kept.drain(..)) {
                self.units.free(kept);
            }
            allocation = self.units.allocate(units);
        }
        Ok(self.part(allocation.ok_or(NoRoom::Now)?, bytes))
    }

    /// The first bytes of the units of an allocation.
    const fn part(&self, allocation: Allocation, bytes: u64) -> Part {
        let at = self.begin + allocation.offset as u64 * UNIT;
        Part { allocation, body: Body { region: 0, at, bytes } }
    }

    /// The parts that are kept for the next part of that many bytes.
    #[inline]
    fn kept_of(&mut self, bytes: u64) -> Option<&mut Vec<Allocation>> {
        self.kept.get_mut((bytes.saturating_sub(1) / UNIT) as usize)
    }

    /// Whether a range of the window is inside the buffers.
    #[inline]
    pub const fn contains(&self, at: u64, bytes: u64) -> bool {
        at >= self.begin && at - self.begin <= self.bytes && bytes <= self.bytes - (at - self.begin)
    }

    /// The bytes of the longest part.
    pub const fn longest(&self) -> u64 {
        self.longest
    }

    /// Returns a part.
    #[inline]
    pub fn free(&mut self, part: Part) {
        match self.kept_of(part.body.bytes) {
            Some(kept) if kept.len() < KEPT => kept.push(part.allocation),
            _ => self.units.free(part.allocation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_parts_that_were_returned_leave_room_for_long_ones() {
        let mut heap = Heap::new(0, 16 * UNIT);
        let parts: Vec<_> = std::iter::from_fn(|| heap.take(UNIT).ok()).collect();
        assert_eq!(parts.len(), 16);
        parts.into_iter().for_each(|part| heap.free(part));
        let long = heap.take(heap.longest()).expect("all parts were returned");
        heap.free(long);
    }
}
