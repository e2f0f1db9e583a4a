//! The arena: one block of memory of the caller, from which the tables of an engine are taken at set-up.
//!
//! All state of the core is in tables from an [`Arena`], and nothing is allocated afterwards. The block must be zeroed, and every
//! table starts as zeros. So a host can pass a fresh private mapping: pages of a table that are never used are never touched, and
//! a table for 100,000 peers costs only the pages that are used.
//!
//! ```
//! use towline_core::arena::Arena;
//!
//! let mut block = [0u8; 256];
//! let mut arena = Arena::new(&mut block);
//! let table: &mut [u32] = arena.table(16).unwrap();
//! assert_eq!(table, &[0; 16]);
//! assert!(arena.table::<u64>(1000).is_err());
//! ```

use core::fmt;
use core::marker::PhantomData;
use core::mem::{MaybeUninit, align_of, size_of};
use core::ptr::NonNull;

use zerocopy::FromZeros;

/// Gives out zeroed tables from one block, front to back. One thread at a time uses it, and only during set-up.
#[derive(Debug)]
pub struct Arena<'m> {
    next: NonNull<u8>,
    left: usize,
    block: PhantomData<&'m mut [u8]>,
}

// SAFETY: an arena is the only owner of its block (it was made from a unique borrow, or the caller of `from_zeroed` vouches for
// that), and a `&mut [u8]` may move between threads.
unsafe impl Send for Arena<'_> {}

impl<'m> Arena<'m> {
    /// Makes an arena over `block`, and zeroes the block.
    pub fn new(block: &'m mut [u8]) -> Self {
        block.fill(0);
        // SAFETY: the block is borrowed uniquely for 'm, and zeroed on the line above.
        unsafe { Self::from_zeroed(NonNull::from(&mut *block).cast(), block.len()) }
    }

    /// Makes an arena over `len` bytes at `block` that are zero, without touching them.
    ///
    /// # Safety
    /// The bytes are valid for reads and writes for all of `'m`, nothing else accesses them during that time, and all of them are
    /// zero, as in a fresh anonymous mapping or in `.bss`.
    pub const unsafe fn from_zeroed(block: NonNull<u8>, len: usize) -> Self {
        Self { next: block, left: len, block: PhantomData }
    }

    /// Takes a table of `count` zeroed items.
    ///
    /// # Errors
    /// [`OutOfMemory`] with the bytes that are needed and the bytes that are left. The arena has not changed then.
    pub fn table<T: FromZeros>(&mut self, count: usize) -> Result<&'m mut [T], OutOfMemory> {
        let Some(table) = self.take(count, size_of::<T>(), align_of::<T>()) else {
            return Err(OutOfMemory { asked: count.saturating_mul(size_of::<T>()), left: self.left });
        };
        // SAFETY: the range is inside the block, aligned, given out once, unique for 'm, and zero; `T: FromZeros` makes zeros valid
        // items.
        Ok(unsafe { core::slice::from_raw_parts_mut(table.cast().as_ptr(), count) })
    }

    /// Takes memory for `count` items of a size and an alignment, which is a power of two. One function for all types of items. `None`: the
    /// rest of the block is too small.
    #[inline(never)]
    fn take(&mut self, count: usize, size: usize, align: usize) -> Option<NonNull<u8>> {
        let pad = self.next.addr().get().wrapping_neg() & align.wrapping_sub(1);
        let bytes = count.checked_mul(size)?.checked_add(pad)?;
        let left = self.left.checked_sub(bytes)?;
        // SAFETY: `bytes`, which includes `pad`, is at most the length of the rest of the block, so both results are inside the
        // block or one past its end.
        let (table, next) = unsafe { (self.next.add(pad), self.next.add(bytes)) };
        self.next = next;
        self.left = left;
        Some(table)
    }

    /// Takes a table of `count` copies of `item`, for types whose items may not be zeros.
    ///
    /// # Errors
    /// As [`table`](Self::table).
    pub fn filled<T: Copy>(&mut self, count: usize, item: T) -> Result<&'m mut [T], OutOfMemory> {
        let table = self.table::<MaybeUninit<T>>(count)?;
        for entry in table.iter_mut() {
            entry.write(item);
        }
        // SAFETY: all entries were written by the loop; `MaybeUninit<T>` has the layout of `T`.
        Ok(unsafe { table.assume_init_mut() })
    }

    /// Takes a table of `count` items, which `make` makes one by one. `make` may take memory from the arena, too. Items are
    /// never dropped.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the table does not fit, or from `make`. Memory that was taken by then is lost.
    pub fn each<T>(
        &mut self,
        count: usize,
        mut make: impl FnMut(&mut Self, usize) -> Result<T, OutOfMemory>,
    ) -> Result<&'m mut [T], OutOfMemory> {
        let table = self.table::<MaybeUninit<T>>(count)?;
        for (index, entry) in table.iter_mut().enumerate() {
            entry.write(make(self, index)?);
        }
        // SAFETY: all entries were written by the loop; `MaybeUninit<T>` has the layout of `T`.
        Ok(unsafe { table.assume_init_mut() })
    }

    /// The bytes that are left.
    pub const fn left(&self) -> usize {
        self.left
    }

    /// The most bytes that a table of `count` items takes, to compute the size of a block: the size of the table, rounded up to a
    /// multiple of 8, and the padding for an alignment above 8. A block that does not begin at a multiple of 8 needs up to 7 more
    /// bytes.
    pub const fn cost<T>(count: usize) -> usize {
        let size = count.saturating_mul(size_of::<T>());
        let rounded = if size > usize::MAX - 8 { size } else { size.next_multiple_of(8) };
        rounded.saturating_add(align_of::<T>().saturating_sub(8))
    }
}

/// The block of the arena is too small. It is the fault of the caller, who has to use a larger block or smaller limits.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct OutOfMemory {
    /// The bytes of the table that did not fit, without padding.
    pub asked: usize,
    /// The bytes that were left.
    pub left: usize,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a table of {} bytes does not fit into the {} bytes that are left: use a larger block, or smaller limits",
            self.asked, self.left
        )
    }
}

impl core::error::Error for OutOfMemory {}

crate::debug_as_display!(OutOfMemory);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_disjoint_and_bounded() {
        let mut block = [0xffu8; 64];
        let mut arena = Arena::new(&mut block);
        let bytes: &mut [u8] = arena.table(3).unwrap();
        let words: &mut [u64] = arena.table(4).unwrap();
        bytes.fill(0xaa);
        assert_eq!(words, &[0; 4]);
        assert_eq!(words.as_ptr() as usize % 8, 0);
        let left = arena.left();
        assert_eq!(arena.table::<u64>(usize::MAX), Err(OutOfMemory { asked: usize::MAX, left }));
        assert_eq!(arena.left(), left);
        assert_eq!(arena.filled(2, &"x"), Ok(&mut [&"x"; 2][..]));
        let left = arena.left();
        assert!(arena.table::<u8>(left).is_ok());
        assert_eq!(arena.left(), 0);
    }
}
