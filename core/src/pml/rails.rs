//! The rails of an engine.

use crate::rail::FullRail;

/// Rails by index. Implemented for arrays and slices; an owner of another kind implements it in a few lines.
pub trait Rails {
    /// What the rails are. One type: an enum where they differ.
    type Rail: FullRail;

    /// How many there are. Constant.
    fn count(&self) -> usize;

    /// One of them.
    fn rail(&self, index: usize) -> Option<&Self::Rail>;

    /// One of them.
    fn rail_mut(&mut self, index: usize) -> Option<&mut Self::Rail>;
}

impl<R: FullRail, const N: usize> Rails for [R; N] {
    type Rail = R;

    #[inline]
    fn count(&self) -> usize {
        N
    }

    #[inline]
    fn rail(&self, index: usize) -> Option<&R> {
        self.get(index)
    }

    #[inline]
    fn rail_mut(&mut self, index: usize) -> Option<&mut R> {
        self.get_mut(index)
    }
}

impl<R: FullRail> Rails for &mut [R] {
    type Rail = R;

    #[inline]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn rail(&self, index: usize) -> Option<&R> {
        self.get(index)
    }

    #[inline]
    fn rail_mut(&mut self, index: usize) -> Option<&mut R> {
        self.get_mut(index)
    }
}
