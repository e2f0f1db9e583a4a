//! A window on user memory.

use zerocopy::FromZeros;

/// A window on the packed form of user memory: where it lies and which bytes of it are meant. Plain data, without a
/// lifetime: whoever reads or writes through it vouches for the memory.
#[derive(Clone, Copy, Debug, FromZeros)]
pub struct Span {
    base: *mut u8,
    len: u64,
}

// SAFETY: a span is an address; access through it is unsafe and argued for where it happens.
unsafe impl Send for Span {}

impl Span {
    /// No bytes at all.
    pub const EMPTY: Self = Self { base: core::ptr::null_mut(), len: 0 };

    /// The `len` bytes at `base`.
    #[inline]
    pub const fn contiguous(base: *mut u8, len: usize) -> Self {
        Self { base, len: len as u64 }
    }

    /// The bytes of a slice that is only read.
    #[inline]
    pub const fn of(bytes: &[u8]) -> Self {
        Self::contiguous(bytes.as_ptr().cast_mut(), bytes.len())
    }

    /// Bytes in packed form.
    #[inline]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no byte.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part of this window from `from` on, `len` bytes long or as many as there are.
    #[inline]
    pub fn window(&self, from: u64, len: u64) -> Self {
        let from = from.min(self.len);
        Self { base: self.base.wrapping_add(from as usize), len: len.min(self.len - from) }
    }

    /// Packs up to `room` bytes to `to`; returns how many.
    ///
    /// # Safety
    /// The window's memory is readable, `to` is writable for `room` bytes, and the two do not overlap.
    #[inline]
    pub unsafe fn pack(&self, to: *mut u8, room: usize) -> usize {
        let len = room.min(self.len as usize);
        if len != 0 {
            // SAFETY: the caller vouches for both sides.
            unsafe { core::ptr::copy_nonoverlapping(self.base, to, len) };
        }
        len
    }

    /// Unpacks up to `len` bytes from `from`; returns how many the window took.
    ///
    /// # Safety
    /// The window's memory is writable, `from` is readable for `len` bytes, and the two do not overlap.
    #[inline]
    pub unsafe fn unpack(&self, from: *const u8, len: usize) -> usize {
        let len = len.min(self.len as usize);
        if len != 0 {
            // SAFETY: the caller vouches for both sides.
            unsafe { core::ptr::copy_nonoverlapping(from, self.base, len) };
        }
        len
    }
}
