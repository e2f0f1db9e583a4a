//! The check that all ranks pass the same length to a collective operation that chooses its algorithm by the length.
//!
//! Ranks with different lengths may choose different algorithms, and would wait for messages that nobody sends. So before an
//! algorithm for long messages, the ranks exchange a [`Length`] in the way of the algorithm for short ones. A rank that chose
//! that one gets a length in place of data, or the other way round, and both see it.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::errors::error::Error;

/// Distinguishes a length from data of the same number of bytes: random bytes.
const MARK: [u64; 2] = [0x3b9f_6a1d_c4e8_5027, 0xe1d2_7c95_04ba_f863];

/// The length that ranks pass to a collective operation: the least and the largest of those known so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Length {
    mark: [u64; 2],
    least: u64,
    most: u64,
}

impl Length {
    pub fn new(bytes: usize) -> Self {
        Self { mark: MARK, least: bytes as u64, most: bytes as u64 }
    }

    pub fn combine(one: &Self, other: &Self) -> Self {
        Self { mark: MARK, least: one.least.min(other.least), most: one.most.max(other.most) }
    }

    /// Checks that all ranks passed this number of bytes. `rank`: the rank whose length this is, or this rank.
    pub fn check(&self, rank: usize, bytes: usize) -> Result<(), Error> {
        let expected = bytes as u64;
        let sent = if self.least == expected { self.most } else { self.least };
        let equal = self.mark == MARK && sent == expected;
        if equal { Ok(()) } else { Err(Error::UnequalLengths { rank: rank as u32, expected, sent }) }
    }
}

/// Whether these bytes, which were received as data, begin with a length.
pub(crate) fn is_length(data: &[u8]) -> bool {
    data.starts_with(MARK.as_bytes())
}
