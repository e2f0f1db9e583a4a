//! The checksum of headers and bodies: a trait, so that hosts can use an instruction of their processor.

use crate::convertor::Span;

/// CRC-32C (Castagnoli, as in iSCSI, RFC 3720), computed piece by piece. All implementations give the same checksums, so the
/// two ends of a link may use different implementations.
///
/// ```
/// use towline_core::link::{Checksum, Crc32c};
///
/// assert_eq!(Crc32c.sum(0, b"123456789"), 0xe306_9283);
/// assert_eq!(Crc32c.sum(Crc32c.sum(0, b"12345"), b"6789"), 0xe306_9283);
/// ```
pub trait Checksum {
    /// The checksum of some bytes followed by `bytes`. `so_far` is the checksum of those before; 0: there are none.
    fn sum(&self, so_far: u32, bytes: &[u8]) -> u32;
}

/// CRC-32C by tables, for any target. The crate `towline-checksum` has a faster one for processors of hosts.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Crc32c;

/// Tables for 16 bytes at a time. A loop of this file uses them, since a compiler cannot prove that the loop of the crate `crc`
/// never panics.
static TABLES: crc::Crc<u32, crc::Table<16>> = crc::Crc::<u32, crc::Table<16>>::new(&crc::CRC_32_ISCSI);

impl Checksum for Crc32c {
    fn sum(&self, so_far: u32, bytes: &[u8]) -> u32 {
        let tables = TABLES.table();
        let look = |table: &[u32; 256], byte: u8| table.get(usize::from(byte)).copied().unwrap_or(0);
        let mut sum = !so_far;
        let (chunks, rest) = bytes.as_chunks::<16>();
        for chunk in chunks {
            let mixed = u128::from_le_bytes(*chunk) ^ u128::from(sum);
            let bytes = mixed.to_le_bytes();
            sum = tables.iter().rev().zip(bytes).fold(0, |sum, (table, byte)| sum ^ look(table, byte));
        }
        for byte in rest {
            sum = tables.first().map_or(0, |table| look(table, sum as u8 ^ byte)) ^ sum >> 8;
        }
        !sum
    }
}

/// CRC-32C by a table of 64 bytes, for devices with little memory: [`Crc32c`] has tables of 16 KiB and is several times faster.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct SmallCrc32c;

/// The checksums of the numbers below 16, each as 4 bits.
static NIBBLES: [u32; 16] = {
    let mut table = [0; 16];
    let mut number = 0;
    while number < 16 {
        let (mut sum, mut bit) = (number, 0);
        while bit < 4 {
            // The polynomial, its highest power in the lowest bit.
            sum = if sum & 1 == 0 { sum >> 1 } else { sum >> 1 ^ 0x82f6_3b78 };
            bit += 1;
        }
        table[number as usize] = sum;
        number += 1;
    }
    table
};

impl Checksum for SmallCrc32c {
    fn sum(&self, so_far: u32, bytes: &[u8]) -> u32 {
        let step = |sum: u32| NIBBLES.get(sum as usize % 16).copied().unwrap_or(0) ^ sum >> 4;
        !bytes.iter().fold(!so_far, |sum, byte| step(step(sum ^ u32::from(*byte))))
    }
}

/// The checksum of the bytes of a span, without a copy.
///
/// # Safety
/// The span's memory is readable, and not written to, during the call.
pub(super) unsafe fn sum_span<C: Checksum>(sums: &C, so_far: u32, span: &Span) -> u32 {
    let mut sum = so_far;
    // SAFETY: passed on from the caller.
    unsafe { span.for_each_piece(|bytes| sum = sums.sum(sum, bytes)) };
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_crc32c_in_any_pieces() {
        // RFC 3720 B.4.
        assert_eq!(Crc32c.sum(0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(Crc32c.sum(0, &[0xff; 32]), 0x62a8_ab43);
        let bytes: [u8; 200] = core::array::from_fn(|at| (at * 7) as u8);
        let whole = Crc32c.sum(0, &bytes);
        for cut in 0..bytes.len() {
            let (one, other) = bytes.split_at(cut);
            assert_eq!(Crc32c.sum(Crc32c.sum(0, one), other), whole);
            assert_eq!(SmallCrc32c.sum(SmallCrc32c.sum(0, one), other), whole);
        }
    }
}
