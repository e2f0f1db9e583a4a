//! CRC-32C with the processor's instructions for it. This is faster than the tables of `towline_core`, and gives the same
//! checksums.
//!
//! ```
//! use towline_checksum::Native;
//! use towline_core::link::{Checksum, Crc32c};
//!
//! assert_eq!(Native.sum(0, b"123456789"), 0xe306_9283);
//! assert_eq!(Native.sum(0, b"123456789"), Crc32c.sum(0, b"123456789"));
//! ```

use crc_fast::{CrcAlgorithm, Digest};
use towline_core::link::Checksum;

/// CRC-32C with the fastest method of this processor, for `Link::new`. The method is chosen once, at the first checksum.
/// Any thread may use it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Native;

impl Checksum for Native {
    #[inline]
    fn sum(&self, so_far: u32, bytes: &[u8]) -> u32 {
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!so_far));
        digest.update(bytes);
        digest.finalize() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use towline_core::link::Crc32c;

    proptest! {
        #[test]
        fn both_methods_give_the_same_sums(
            bytes in prop::collection::vec(any::<u8>(), 0..9000),
            from in 0usize..70,
            cut in any::<prop::sample::Index>(),
            so_far in any::<u32>(),
        ) {
            let bytes = bytes.get(from..).unwrap_or(&bytes); // at any alignment
            prop_assert_eq!(Native.sum(so_far, bytes), Crc32c.sum(so_far, bytes));
            let (one, other) = bytes.split_at(cut.index(bytes.len() + 1));
            prop_assert_eq!(Native.sum(Native.sum(so_far, one), other), Crc32c.sum(so_far, bytes));
        }
    }
}
