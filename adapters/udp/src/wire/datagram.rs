//! The sixteen bytes before each frame. Pure: no socket in here.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | kind: `F` a frame, `B` bye (nothing follows), `H` a [hello](crate::hello) |
//! | 1 | [`VERSION`] |
//! | 2 | active-message tag; zero in a bye |
//! | 3 | length of the frame's header, at most [`HEAD`]; zero in a bye |
//! | 4..8 | number of the sender at the receiver, little-endian, as the receiver's hello gave it |
//! | 8..16 | mark or code of the [session](crate::session::auth) |
//! | 16.. | the frame: header and body |
//!
//! Where the two ends encrypt, a datagram is:
//!
//! | bytes | what |
//! |---|---|
//! | 0 | `E` |
//! | 1 | [`VERSION`] |
//! | 2..4 | zero |
//! | 4..8 | number of the sender at the receiver |
//! | 8..16 | number of the datagram in its session, used once |
//! | 16.. | sealed under that number: kind, tag and header length as above, a zero, the frame; [`SEALED`] bytes more than the frame |
//!
//! A hello has nothing in common with the others but the first two bytes.

use towline_core::rail::HEAD;
use towline_crypt::TAG;

use crate::hello::HELLO;

/// Version of all that travels.
pub const VERSION: u8 = 2;
/// Bytes before a frame.
pub const PREFIX: usize = 16;
/// Bytes of a proof in a prefix.
pub const PROOF: usize = 8;
/// Bytes before the proof: those that a code covers, beside the frame.
pub const START: usize = PREFIX - PROOF;

/// Bytes before a frame inside of what is sealed.
pub const INNER: usize = 4;
/// Bytes that an encrypted frame takes beside prefix and frame.
pub const SEALED: usize = INNER + TAG;

const FRAME: u8 = b'F';
const BYE: u8 = b'B';
const ENCRYPTED: u8 = b'E';
pub(crate) const KIND_HELLO: u8 = b'H';

/// A datagram, read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Datagram<'d> {
    /// A frame, or the end of the frames.
    Marked {
        /// Number of the sender at the receiver.
        index: u32,
        /// What proves the sender.
        proof: [u8; PROOF],
        /// What it is.
        what: What,
        /// What is behind the prefix.
        frame: &'d [u8],
    },
    /// A frame, or the end of the frames, that only the receiver can read.
    Sealed {
        /// Number of the sender at the receiver.
        index: u32,
        /// Number of the datagram.
        number: u64,
        /// What is behind the prefix: [`SEALED`] bytes at least.
        sealed: &'d [u8],
    },
    /// Somebody says who he is.
    Hello(&'d [u8; HELLO]),
}

/// What a sender that has proved itself says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// A frame.
    Frame {
        /// The active-message tag.
        tag: u8,
        /// Bytes of the header.
        header: u8,
    },
    /// It sends no more, in good order.
    Bye,
}

/// Why bytes are no datagram of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BadDatagram {
    /// Not a towline.
    Foreign,
    /// Another version, which is given.
    Version(u8),
    /// A field has a value that it cannot have.
    Malformed,
}

impl std::fmt::Display for BadDatagram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Foreign => f.write_str("it is no towline that speaks"),
            Self::Version(version) => write!(f, "it speaks version {version}, here is version {VERSION}"),
            Self::Malformed => f.write_str("its datagram is malformed"),
        }
    }
}

impl std::error::Error for BadDatagram {}

/// The first bytes of a prefix; the proof follows.
#[inline]
pub const fn start(what: What, index: u32) -> [u8; START] {
    let (kind, tag, header) = match what {
        What::Frame { tag, header } => (FRAME, tag, header),
        What::Bye => (BYE, 0, 0),
    };
    let [a, b, c, d] = index.to_le_bytes();
    [kind, VERSION, tag, header, a, b, c, d]
}

/// The prefix of an encrypted datagram.
#[inline]
pub const fn sealed_start(index: u32, number: u64) -> [u8; PREFIX] {
    let ([a, b, c, d], [e, f, g, h, i, j, k, l]) = (index.to_le_bytes(), number.to_le_bytes());
    [ENCRYPTED, VERSION, 0, 0, a, b, c, d, e, f, g, h, i, j, k, l]
}

/// What goes before a frame inside of what is sealed.
#[inline]
pub const fn inner(what: What) -> [u8; INNER] {
    match what {
        What::Frame { tag, header } => [FRAME, tag, header, 0],
        What::Bye => [BYE, 0, 0, 0],
    }
}

/// Reads what was sealed.
///
/// # Errors
/// [`BadDatagram::Malformed`] for what no towline seals.
#[inline]
pub fn read_inner(bytes: &[u8]) -> Result<(What, &[u8]), BadDatagram> {
    match bytes.split_first_chunk::<INNER>() {
        Some(([FRAME, tag, header, 0], frame)) if usize::from(*header) <= HEAD.min(frame.len()) => {
            Ok((What::Frame { tag: *tag, header: *header }, frame))
        }
        Some(([BYE, 0, 0, 0], [])) => Ok((What::Bye, &[])),
        _ => Err(BadDatagram::Malformed),
    }
}

/// Reads a datagram. Every bit is checked or used.
///
/// # Errors
/// [`BadDatagram`] says what kind of stranger it is.
///
/// ```
/// use towline_udp::datagram::{Datagram, PREFIX, What, read, start};
///
/// let what = What::Frame { tag: 0x40, header: 2 };
/// let mut bytes = [0; PREFIX + 5];
/// bytes[..8].copy_from_slice(&start(what, 7));
/// assert_eq!(read(&bytes), Ok(Datagram::Marked { index: 7, proof: [0; 8], what, frame: &[0; 5] }));
/// ```
#[inline]
pub fn read(bytes: &[u8]) -> Result<Datagram<'_>, BadDatagram> {
    let (kind, version) = match *bytes {
        [kind @ (FRAME | BYE | ENCRYPTED | KIND_HELLO), version, ..] => (kind, version),
        _ => return Err(BadDatagram::Foreign),
    };
    if version != VERSION {
        return Err(BadDatagram::Version(version));
    }
    if kind == KIND_HELLO {
        return bytes.try_into().map(Datagram::Hello).map_err(|_| BadDatagram::Malformed);
    }
    let Some((&[_, _, tag, header, a, b, c, d, ref proof @ ..], frame)) = bytes.split_first_chunk::<PREFIX>() else {
        return Err(BadDatagram::Malformed);
    };
    if kind == ENCRYPTED {
        if tag != 0 || header != 0 || frame.len() < SEALED {
            return Err(BadDatagram::Malformed);
        }
        let (index, number) = (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(*proof));
        return Ok(Datagram::Sealed { index, number, sealed: frame });
    }
    let what = match kind {
        FRAME if usize::from(header) <= HEAD.min(frame.len()) => What::Frame { tag, header },
        BYE if tag == 0 && header == 0 && frame.is_empty() => What::Bye,
        _ => return Err(BadDatagram::Malformed),
    };
    Ok(Datagram::Marked { index: u32::from_le_bytes([a, b, c, d]), proof: *proof, what, frame })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let what = What::Frame { tag: 0x40, header: 3 };
        assert_eq!(start(what, 0x0102_0304), [b'F', 2, 0x40, 3, 4, 3, 2, 1]);
        assert_eq!(start(What::Bye, 9), [b'B', 2, 0, 0, 9, 0, 0, 0]);
        let sealed = &[9; SEALED][..];
        let bytes = [&b"E\x02\0\0\x04\x03\x02\x01\x08\0\0\0\0\0\0\0"[..], sealed].concat();
        assert_eq!(bytes[..PREFIX], sealed_start(0x0102_0304, 8));
        assert_eq!(read(&bytes), Ok(Datagram::Sealed { index: 0x0102_0304, number: 8, sealed }));
        assert_eq!(inner(what), *b"F\x40\x03\0");
        assert_eq!(read_inner(b"F\x40\x03\0abcd"), Ok((what, &b"abcd"[..])));
        assert_eq!(read_inner(&inner(What::Bye)), Ok((What::Bye, &[][..])));
        let bytes = b"F\x02\x40\x03\x04\x03\x02\x01PROOF..!abcd";
        let (index, frame) = (0x0102_0304, &b"abcd"[..]);
        assert_eq!(read(bytes), Ok(Datagram::Marked { index, proof: *b"PROOF..!", what, frame }));
    }

    #[test]
    fn what_nobody_wrote_is_refused() {
        let malformed = Err(BadDatagram::Malformed);
        assert_eq!(read(&[]), Err(BadDatagram::Foreign));
        assert_eq!(read(b"GET / HTTP/1.1\r\n\r\n"), Err(BadDatagram::Foreign));
        assert_eq!(read(b"F\x01.............."), Err(BadDatagram::Version(1)));
        assert_eq!(read(b"F\x02\x40\x03\x04\x03\x02\x01PROOF.."), malformed, "cut short");
        assert_eq!(read(b"F\x02\x40\x05\x04\x03\x02\x01PROOF..!abcd"), malformed, "a header longer than the frame");
        let mut long = [0; 200];
        long[..4].copy_from_slice(b"F\x02\x40\x39");
        assert_eq!(read(&long), malformed, "a header longer than HEAD");
        assert_eq!(read(b"B\x02\0\0....PROOF..!a"), malformed, "a bye with a frame");
        assert_eq!(read(b"B\x02\x01\0....PROOF..!"), malformed, "a bye with a tag");
        assert_eq!(read(&[&sealed_start(1, 2)[..], &[0; SEALED - 1]].concat()), malformed, "shorter than any seal");
        assert_eq!(read(&[&b"E\x02\0\x01"[..], &[0; 40]].concat()), malformed, "a header outside of the seal");
        for bad in [&b"F\x40\x01\0"[..], b"F\x40\0\x01", b"B\0\0\0a", b"B\x01\0\0", b"X\0\0\0", b"F\x40\0"] {
            assert_eq!(read_inner(bad), Err(BadDatagram::Malformed));
        }
        assert_eq!(read(b"H\x02"), malformed);
        assert_eq!(read(&[&b"H\x02"[..], &[0; HELLO - 1]].concat()), malformed, "a hello too long");
    }
}
