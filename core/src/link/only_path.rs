//! The path of a link that has one peer, in the place of `paths`.

use core::marker::PhantomData;

use zerocopy::FromZeros;

use super::path::Path;
use crate::arena::{Arena, OutOfMemory};

/// Whether a link may have several peers: the feature `mesh`. Code behind this constant is for several.
pub(super) const SEVERAL: bool = false;

/// The only path. It has every number, since the rail below and the user know no other peer than this one. So no access is checked.
#[derive(Debug)]
pub(super) struct Paths<'m> {
    only: Path,
    tables: PhantomData<&'m mut [Path]>,
}

impl<'m> Paths<'m> {
    pub fn new(_: &mut Arena<'m>, _: usize) -> Result<Self, OutOfMemory> {
        Ok(Self { only: Path::new_zeroed(), tables: PhantomData })
    }

    pub const fn cost(_: usize) -> usize {
        0
    }

    #[inline(always)]
    pub const fn get(&self, _: usize) -> Option<&Path> {
        Some(&self.only)
    }

    #[inline(always)]
    pub const fn get_mut(&mut self, _: usize) -> Option<&mut Path> {
        Some(&mut self.only)
    }

    pub const fn len(&self) -> usize {
        1
    }

    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        core::iter::once(&self.only)
    }
}

/// Where the entries of a peer begin in a table that has `each` entries for each peer.
#[inline(always)]
pub(super) const fn start(_: u32, _: usize) -> usize {
    0
}
