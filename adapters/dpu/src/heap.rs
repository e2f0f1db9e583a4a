//! Which parts of the buffers are in use.

use offset_allocator::{Allocation, Allocator};
use towline_window::command::Body;

/// Bytes of a unit. Parts are multiples of it, so that no two messages share a line.
const UNIT: u64 = 64;

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
    begin: u64,
    /// The longest part that the allocator gives, which is up to an eighth shorter than the buffers.
    longest: u64,
    units: Allocator,
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
        Self { begin, longest, units }
    }

    /// Takes a part of that many bytes.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn take(&mut self, bytes: u64) -> Result<Part, NoRoom> {
        if bytes > self.longest {
            return Err(NoRoom::Ever);
        }
        let units = u32::try_from(bytes.div_ceil(UNIT).max(1)).map_err(|_| NoRoom::Ever)?;
        let allocation = self.units.allocate(units).ok_or(NoRoom::Now)?;
        let at = self.begin + u64::from(allocation.offset) * UNIT;
        Ok(Part { allocation, body: Body { region: 0, at, bytes } })
    }

    /// The bytes of the longest part.
    pub const fn longest(&self) -> u64 {
        self.longest
    }

    /// Returns a part.
    pub fn free(&mut self, part: Part) {
        self.units.free(part.allocation);
    }
}
