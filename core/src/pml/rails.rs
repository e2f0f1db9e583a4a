//! The rails of an engine.

use crate::pml::offload::device::Offload;
use crate::rail::FullRail;

/// The rails of an engine, by index. The trait is implemented for arrays and mutable slices. A caller whose rails are stored
/// otherwise implements it in a few lines.
pub trait Rails {
    /// The type of all rails. Rails of several types are wrapped in an enum.
    type Rail: FullRail;

    /// The number of rails. It never changes.
    fn count(&self) -> usize;

    /// The number of rails that are polled: the first ones. The others are spares ([`Pml::add_spare`](crate::pml::Pml::add_spare))
    /// that no peer uses so far. It grows to [`count`](Self::count) with [`poll_spares`](Self::poll_spares).
    #[inline]
    fn polled(&self) -> usize {
        self.count()
    }

    /// The device that matches the messages of some communicators, if there is one. It never changes.
    #[inline]
    fn offload(&mut self) -> Option<&mut dyn Offload> {
        None
    }

    /// A peer uses a spare rail from now on, so all rails are polled. It may be called again.
    fn poll_spares(&mut self) {}

    /// The rail of that index. `None` from [`count`](Self::count) on.
    fn rail(&self, index: usize) -> Option<&Self::Rail>;

    /// The rail of that index. `None` from [`count`](Self::count) on.
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
