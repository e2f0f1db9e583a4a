//! The fields of a span, which may have a layout.

use core::ptr;

use zerocopy::FromZeros;

use super::layout::Layout;

/// The fields of a [`Span`].
pub(crate) type Parts = (*mut u8, u64, *const Layout<'static>, u64);

/// A part of user memory in packed form: the place of the memory, and the range of packed bytes. A span has no lifetime: the
/// code that reads or writes through it vouches for the memory.
#[derive(Clone, Copy, Debug, FromZeros)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Span {
    /// The first byte of the span. With a layout, the origin of the layout.
    pub(super) base: *mut u8,
    pub(super) len: u64,
    /// Null if the memory is contiguous.
    pub(super) layout: *const Layout<'static>,
    /// With a layout, the packed byte at which the span begins.
    pub(super) from: u64,
}

const _: () = assert!(size_of::<Span>() <= 32);

impl Span {
    /// The fields of the span, each of which fits into a register.
    #[inline]
    pub(crate) const fn parts(self) -> Parts {
        (self.base, self.len, self.layout, self.from)
    }

    #[inline]
    pub(crate) const fn of_parts((base, len, layout, from): Parts) -> Self {
        Self { base, len, layout, from }
    }

    /// The `len` bytes at `base`.
    #[inline]
    pub const fn contiguous(base: *mut u8, len: usize) -> Self {
        Self { base, len: len as u64, layout: ptr::null(), from: 0 }
    }

    /// The number of bytes in packed form.
    #[inline]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// The part from packed byte `from` on, which is at most the length, with `len` bytes.
    #[inline(always)]
    pub(super) const fn part(&self, from: u64, len: u64) -> Self {
        if self.layout.is_null() {
            Self { base: self.base.wrapping_add(from as usize), len, ..*self }
        } else {
            Self { from: self.from.wrapping_add(from), len, ..*self }
        }
    }

    /// The layout, or null, and the packed byte from which the span begins.
    #[inline(always)]
    pub(super) const fn laid(&self) -> (*const Layout<'static>, u64) {
        (self.layout, self.from)
    }
}
