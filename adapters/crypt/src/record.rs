//! The records into which a stream of sealed bytes is divided.
//!
//! | bytes | content |
//! |---|---|
//! | 0..2 | number of bytes that follow, little-endian: 17 to [`LONGEST`] |
//! | 2.. | up to [`PLAIN`] bytes of the stream, sealed, which adds 16 bytes |

use crate::{Cipher, Forged, TAG};

/// Bytes before each record.
pub const PREFIX: usize = 2;
/// Maximum number of plain bytes in one record.
pub const PLAIN: usize = 32 * 1024;
/// Maximum number of sealed bytes in one record.
pub const LONGEST: usize = PLAIN + TAG;
/// Bytes of the longest record, including its prefix.
pub const WHOLE: usize = PREFIX + LONGEST;

/// The beginning of received bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// More bytes are needed.
    Partial,
    /// A complete record with this many sealed bytes.
    Whole(usize),
    /// The length is invalid for a record.
    Malformed,
}

/// Examines the beginning of received bytes.
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

/// Makes a record of up to [`PLAIN`] bytes. Returns its length, or 0 if `out` is too short or `plain` is empty or too long.
pub fn seal(cipher: &mut Cipher, plain: &[u8], out: &mut [u8]) -> usize {
    let Some((prefix, rest)) = out.split_first_chunk_mut::<PREFIX>() else { return 0 };
    if plain.is_empty() || plain.len() > PLAIN {
        return 0;
    }
    let sealed = cipher.seal(plain, rest);
    *prefix = (sealed as u16).to_le_bytes();
    if sealed == 0 { 0 } else { PREFIX + sealed }
}

/// Opens a record of `sealed` bytes that [`look`] has found. Returns the number of its plain bytes.
///
/// # Errors
/// [`Forged`] if the record is not genuine. The rest of the stream cannot be trusted then.
pub fn open(cipher: &mut Cipher, bytes: &[u8], sealed: usize, out: &mut [u8]) -> Result<usize, Forged> {
    cipher.open(bytes.get(PREFIX..PREFIX + sealed).ok_or(Forged)?, out)
}

const _: () = assert!(LONGEST <= u16::MAX as usize);
