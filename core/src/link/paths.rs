//! The table of a link's paths, for any number of peers.

use core::ops::{Deref, DerefMut};

use super::path::Path;
use crate::arena::{Arena, OutOfMemory};

/// Whether a link may have several peers: the feature `mesh`. Code behind this constant is for several.
pub(super) const SEVERAL: bool = true;

/// The paths, by the number of the peer.
#[derive(Debug)]
pub(super) struct Paths<'m>(&'m mut [Path]);

impl<'m> Paths<'m> {
    pub fn new(arena: &mut Arena<'m>, count: usize) -> Result<Self, OutOfMemory> {
        Ok(Self(arena.table(count)?))
    }

    pub const fn cost(count: usize) -> usize {
        Arena::cost::<Path>(count)
    }
}

impl Deref for Paths<'_> {
    type Target = [Path];

    #[inline(always)]
    fn deref(&self) -> &[Path] {
        self.0
    }
}

impl DerefMut for Paths<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [Path] {
        self.0
    }
}

/// Where the entries of a peer begin in a table that has `each` entries for each peer.
#[inline(always)]
pub(super) const fn start(at: u32, each: usize) -> usize {
    (at as usize).wrapping_mul(each)
}
