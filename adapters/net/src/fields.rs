//! Fixed-size fields in byte arrays. All numbers on the wire are little-endian.
//!
//! The offsets are constants of a wire format, so the compiler sees that the bounds hold.

/// The `N` bytes from `at` on.
///
/// # Panics
/// If `at + N` is more than `LEN`. A wrong offset is a mistake in the caller's format, never in received bytes.
#[inline]
pub fn bytes_at<const N: usize, const LEN: usize>(bytes: &[u8; LEN], at: usize) -> [u8; N] {
    std::array::from_fn(|byte| bytes[at + byte])
}

/// The little-endian number in the four bytes from `at` on.
///
/// # Panics
/// As [`bytes_at`].
///
/// ```
/// use towline_net::fields::{u32_at, u64_at};
///
/// let bytes = [9, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
/// assert_eq!((u32_at(&bytes, 1), u64_at(&bytes, 5)), (1, 2));
/// ```
#[inline]
pub fn u32_at<const LEN: usize>(bytes: &[u8; LEN], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(bytes, at))
}

/// The little-endian number in the eight bytes from `at` on.
///
/// # Panics
/// As [`bytes_at`].
#[inline]
pub fn u64_at<const LEN: usize>(bytes: &[u8; LEN], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(bytes, at))
}
