//! What a stream of sealed bytes is cut into.
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | bytes that follow, little-endian: 17 to [`LONGEST`] |
//! | 2.. | up to [`PLAIN`] bytes of the stream, sealed: 16 more than they were |

use crate::{Cipher, Forged, TAG};

/// Bytes before each record.
pub const PREFIX: usize = 2;
/// Bytes of the stream in one record at most.
pub const PLAIN: usize = 32 * 1024;
/// Sealed bytes of one record at most.
pub const LONGEST: usize = PLAIN + TAG;
/// Bytes of the longest record with its prefix.
pub const WHOLE: usize = PREFIX + LONGEST;

/// What bytes begin with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// More bytes are needed.
    Partial,
    /// A record of so many sealed bytes, all of them here.
    Whole(usize),
    /// A length that no record has.
    Malformed,
}

/// Looks at what arrived.
///
/// ```
/// use towline_crypt::record::{Record, look};
///
/// assert_eq!(look(&[17]), Record::Partial);
/// assert_eq!(look(&[16, 0]), Record::Malformed);
/// assert_eq!(look(&[[17, 0].as_slice(), &[0; 17]].concat()), Record::Whole(17));
/// ```
#[inline]
pub fn look(bytes: &[u8]) -> Record {
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else { return Record::Partial };
    let len = usize::from(u16::from_le_bytes(*prefix));
    if !(TAG + 1..=LONGEST).contains(&len) {
        Record::Malformed
    } else if rest.len() < len {
        Record::Partial
    } else {
        Record::Whole(len)
    }
}

/// Makes a record of up to [`PLAIN`] bytes; how long it is. 0 where `out` has no room for it, or there is nothing to seal.
pub fn seal(cipher: &mut Cipher, plain: &[u8], out: &mut [u8]) -> usize {
    let Some((prefix, rest)) = out.split_first_chunk_mut::<PREFIX>() else { return 0 };
    if plain.is_empty() || plain.len() > PLAIN {
        return 0;
    }
    let sealed = cipher.seal(plain, rest);
    *prefix = (sealed as u16).to_le_bytes();
    if sealed == 0 { 0 } else { PREFIX + sealed }
}

/// Opens the record that [`look`] has found to be of `sealed` bytes; how many there are in it.
///
/// # Errors
/// [`Forged`]; nothing of the stream can be believed from there on.
pub fn open(cipher: &mut Cipher, bytes: &[u8], sealed: usize, out: &mut [u8]) -> Result<usize, Forged> {
    cipher.open(bytes.get(PREFIX..PREFIX + sealed).ok_or(Forged)?, out)
}

const _: () = assert!(LONGEST <= u16::MAX as usize);
