//! Copies of a few bytes without a function call.

use core::ptr;

/// Copies `len` bytes. Up to 32 bytes take two loads and two stores, which may overlap each other, without a function call.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, and the two do not overlap.
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // The most common lengths come first: one or two words.
    if cfg!(feature = "copies") && len.wrapping_sub(8) <= 8 {
        // SAFETY: both pieces lie within the `len` bytes.
        return unsafe { ends::<u64>(from, to, len) };
    }
    // Small processors have little room for code.
    if cfg!(any(target_pointer_width = "32", not(feature = "copies"))) || len > 32 {
        // SAFETY: as promised to this function.
        return unsafe { ptr::copy_nonoverlapping(from, to, len) };
    }
    // SAFETY: in each case both pieces lie within the `len` bytes, as the case says.
    unsafe {
        if len > 16 {
            ends::<[u64; 2]>(from, to, len);
        } else if len >= 4 {
            ends::<u32>(from, to, len);
        } else if len != 0 {
            let (middle, last) = (from.add(len / 2).read(), from.add(len - 1).read());
            to.write(from.read());
            to.add(len / 2).write(middle);
            to.add(len - 1).write(last);
        }
    }
}

/// Copies as many bytes as both slices have. Returns how many. One function in small builds, where iterators take more room.
#[cfg_attr(feature = "copies", inline)]
#[cfg_attr(not(feature = "copies"), inline(never))]
pub fn copy_slice(to: &mut [u8], from: &[u8]) -> usize {
    let len = to.len().min(from.len());
    // SAFETY: both slices have at least `len` bytes, and do not overlap, since one of them is borrowed uniquely.
    unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), len) };
    len
}

/// Copies the first and the last `size_of::<T>()` bytes.
///
/// # Safety
/// As for `copy`. `len` is at least the size of `T`, and any bytes are a valid `T`.
#[inline(always)]
unsafe fn ends<T: Copy>(from: *const u8, to: *mut u8, len: usize) {
    let last = len - size_of::<T>();
    // SAFETY: both pieces lie within `len` bytes.
    unsafe {
        let (head, tail) = (from.cast::<T>().read_unaligned(), from.add(last).cast::<T>().read_unaligned());
        to.cast::<T>().write_unaligned(head);
        to.add(last).cast::<T>().write_unaligned(tail);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_length_is_copied_and_no_other_bytes() {
        for len in 0..80usize {
            let from: [u8; 80] = core::array::from_fn(|i| i as u8 + 1);
            let mut to = [0xffu8; 96];
            // SAFETY: both arrays are longer than `len`.
            unsafe { super::copy(from.as_ptr(), to.as_mut_ptr().add(8), len) };
            assert_eq!(&to[8..8 + len], &from[..len]);
            assert!(to[..8].iter().chain(&to[8 + len..]).all(|byte| *byte == 0xff));
        }
    }
}
