//! Bounded access to the window's memory.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// Bytes of a line. Words that different sides write are in different lines.
pub const LINE: usize = 64;

/// Memory of a window, as this side has it mapped. Offsets are bytes from its begin. A copy refers to the same memory.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'w> {
    base: NonNull<u8>,
    bytes: usize,
    lifetime: PhantomData<&'w ()>,
}

// SAFETY: all accesses are atomic, or are copies of bytes that the specification gives to one side at a time. What a hostile
// other side does to these bytes is undefined in the same way with one thread.
unsafe impl Send for Memory<'_> {}
// SAFETY: as above.
unsafe impl Sync for Memory<'_> {}

/// A range is not inside the window or, for a word, not at a multiple of 4.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct OutOfBounds;

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a range is not inside the window")
    }
}

impl core::error::Error for OutOfBounds {}

towline_core::debug_as_display!(OutOfBounds);

impl<'w> Memory<'w> {
    /// The memory of `bytes` bytes at `base`. Returns `None` if `base` is not at a multiple of 64.
    ///
    /// # Safety
    /// The memory must be valid for reads and writes for `'w`, and no Rust reference to it may exist. Other processors, devices
    /// and processes may read and write it at any time.
    pub unsafe fn new(base: NonNull<u8>, bytes: usize) -> Option<Self> {
        base.cast::<Line>().is_aligned().then_some(Self { base, bytes, lifetime: PhantomData })
    }

    /// Its size in bytes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of a range.
    ///
    /// # Errors
    /// [`OutOfBounds`].
    pub fn range(&self, at: u64, bytes: u64) -> Result<NonNull<u8>, OutOfBounds> {
        let end = at.checked_add(bytes).ok_or(OutOfBounds)?;
        if end > self.bytes as u64 {
            return Err(OutOfBounds);
        }
        // SAFETY: the range is inside the memory, so its begin is, too.
        Ok(unsafe { self.base.add(at as usize) })
    }

    /// Copies bytes from the window.
    ///
    /// # Errors
    /// [`OutOfBounds`]: nothing was copied.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), OutOfBounds> {
        let from = self.range(at, into.len() as u64)?;
        // SAFETY: the range is inside the window, and `into` is not, since no reference to the window's memory exists.
        unsafe { from.as_ptr().copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies bytes to the window.
    ///
    /// # Errors
    /// [`OutOfBounds`]: nothing was copied.
    pub fn write(&self, at: u64, from: &[u8]) -> Result<(), OutOfBounds> {
        let into = self.range(at, from.len() as u64)?;
        // SAFETY: as in `read`.
        unsafe { into.as_ptr().copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        Ok(())
    }

    /// A word.
    ///
    /// # Errors
    /// [`OutOfBounds`].
    #[cfg(not(window_model))]
    pub fn word(&self, at: u64) -> Result<&'w crate::atomics::AtomicU32, OutOfBounds> {
        if !at.is_multiple_of(4) {
            return Err(OutOfBounds);
        }
        let word = self.range(at, 4)?;
        // SAFETY: the word is inside the memory, at a multiple of 4, and is valid for the lifetime. This side accesses it as an
        // atomic only.
        Ok(unsafe { crate::atomics::AtomicU32::from_ptr(word.as_ptr().cast()) })
    }
}

/// What the memory is aligned to.
#[repr(align(64))]
struct Line;
const _: () = assert!(align_of::<Line>() == LINE);
