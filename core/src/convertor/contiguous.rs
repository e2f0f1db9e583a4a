//! The fields of a span in a build without layouts, in the place of `fields`.

use core::ptr;

use zerocopy::FromZeros;

use super::layout::Layout;

/// The fields of a [`Span`].
pub(crate) type Parts = (*mut u8, usize);

/// A part of user memory: its place, and its length. A span has no lifetime: the code that reads or writes through it vouches for the
/// memory.
#[derive(Clone, Copy, Debug, FromZeros)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Span {
    /// The first byte of the span.
    pub(super) base: *mut u8,
    pub(super) len: usize,
}

impl Span {
    /// The fields of the span, each of which fits into a register.
    #[inline]
    pub(crate) const fn parts(self) -> Parts {
        (self.base, self.len)
    }

    #[inline]
    pub(crate) const fn of_parts((base, len): Parts) -> Self {
        Self { base, len }
    }

    /// The `len` bytes at `base`.
    #[inline]
    pub const fn contiguous(base: *mut u8, len: usize) -> Self {
        Self { base, len }
    }

    /// The number of bytes in packed form.
    #[inline]
    pub const fn len(&self) -> u64 {
        self.len as u64
    }

    /// The part from byte `from` on, which is at most the length, with `len` bytes.
    #[inline(always)]
    pub(super) const fn part(&self, from: u64, len: u64) -> Self {
        Self { base: self.base.wrapping_add(from as usize), len: len as usize }
    }

    /// Null, since there is no layout.
    #[inline(always)]
    pub(super) const fn laid(&self) -> (*const Layout<'static>, u64) {
        (ptr::null(), 0)
    }
}
