//! The prefix of sixteen bytes before each frame. No code here uses a socket.
//!
//! | bytes | content |
//! |---|---|
//! | 0 | kind: `F` for a frame, `B` for a goodbye, `H` for a [hello](crate::hello) |
//! | 1 | [`VERSION`] |
//! | 2 | active-message tag; zero in a goodbye |
//! | 3 | length of the frame's header, at most [`HEAD`]; zero in a goodbye |
//! | 4..8 | index of the sender at the receiver, little-endian, from the receiver's hello |
//! | 8..16 | proof of the [session](crate::session): a token or a MAC |
//! | 16.. | the frame, which is header and body; nothing in a goodbye |
//!
//! An encrypted datagram:
//!
//! | bytes | content |
//! |---|---|
//! | 0 | `E` |
//! | 1 | [`VERSION`] |
//! | 2..4 | zero |
//! | 4..8 | index of the sender at the receiver |
//! | 8..16 | number of the datagram in its session, which is used once |
//! | 16.. | sealed under that number: kind, tag and header length as above, a zero, the frame; [`SEALED`] bytes more than the frame |
//!
//! A hello has only the first two bytes in common with the other datagrams.

use towline_core::rail::HEAD;
use towline_crypt::TAG;

use crate::wire::format::{BadDatagram, HELLO, KIND_HELLO, VERSION};

/// Bytes before a frame.
pub const PREFIX: usize = 16;
/// Bytes of the proof in a prefix.
pub const PROOF: usize = 8;
/// Bytes before the proof. A MAC covers them and the frame.
pub const START: usize = PREFIX - PROOF;

/// Bytes before the frame in the sealed part.
pub const INNER: usize = 4;
/// Bytes of an encrypted datagram beside prefix and frame.
pub const SEALED: usize = INNER + TAG;

const FRAME: u8 = b'F';
const GOODBYE: u8 = b'B';
const ENCRYPTED: u8 = b'E';

/// A datagram, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Datagram<'d> {
    /// A plain datagram.
    Plain {
        /// Index of the sender at the receiver.
        index: u32,
        /// The proof of the sender.
        proof: [u8; PROOF],
        /// The kind of its content.
        content: Content,
        /// The bytes behind the prefix.
        frame: &'d [u8],
    },
    /// An encrypted datagram.
    Sealed {
        /// Index of the sender at the receiver.
        index: u32,
        /// Number of the datagram in its session.
        number: u64,
        /// The bytes behind the prefix, at least [`SEALED`].
        sealed: &'d [u8],
    },
    /// A hello, not decoded.
    Hello(&'d [u8; HELLO]),
}

/// The content of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// A frame.
    Frame {
        /// The active-message tag.
        tag: u8,
        /// Bytes of the header.
        header: u8,
    },
    /// The sender ends the session normally and sends nothing more.
    Goodbye,
}

/// The prefix of a plain datagram, up to its proof.
#[inline]
pub const fn prefix_start(content: Content, index: u32) -> [u8; START] {
    let (kind, tag, header) = match content {
        Content::Frame { tag, header } => (FRAME, tag, header),
        Content::Goodbye => (GOODBYE, 0, 0),
    };
    let [a, b, c, d] = index.to_le_bytes();
    [kind, VERSION, tag, header, a, b, c, d]
}

/// The prefix of an encrypted datagram.
#[inline]
pub const fn sealed_prefix(index: u32, number: u64) -> [u8; PREFIX] {
    let ([a, b, c, d], [e, f, g, h, i, j, k, l]) = (index.to_le_bytes(), number.to_le_bytes());
    [ENCRYPTED, VERSION, 0, 0, a, b, c, d, e, f, g, h, i, j, k, l]
}

/// The bytes before the frame in the sealed part.
#[inline]
pub const fn inner_prefix(content: Content) -> [u8; INNER] {
    match content {
        Content::Frame { tag, header } => [FRAME, tag, header, 0],
        Content::Goodbye => [GOODBYE, 0, 0, 0],
    }
}

/// Reads the sealed part, once it is opened: its content and the frame.
///
/// # Errors
/// [`BadDatagram::Malformed`] for bytes that do not start with an [`inner_prefix`].
#[inline]
pub fn read_inner(bytes: &[u8]) -> Result<(Content, &[u8]), BadDatagram> {
    match bytes.split_first_chunk::<INNER>() {
        Some(([FRAME, tag, header, 0], frame)) if usize::from(*header) <= HEAD.min(frame.len()) => {
            Ok((Content::Frame { tag: *tag, header: *header }, frame))
        }
        Some(([GOODBYE, 0, 0, 0], [])) => Ok((Content::Goodbye, &[])),
        _ => Err(BadDatagram::Malformed),
    }
}

/// Reads a datagram. Every bit is checked or used.
///
/// # Errors
/// [`BadDatagram`] says why the bytes are not a datagram of this protocol.
///
/// ```
/// use towline_udp::datagram::{Content, Datagram, PREFIX, prefix_start, read};
///
/// let content = Content::Frame { tag: 0x40, header: 2 };
/// let mut bytes = [0; PREFIX + 5];
/// bytes[..8].copy_from_slice(&prefix_start(content, 7));
/// assert_eq!(read(&bytes), Ok(Datagram::Plain { index: 7, proof: [0; 8], content, frame: &[0; 5] }));
/// ```
#[inline]
pub fn read(bytes: &[u8]) -> Result<Datagram<'_>, BadDatagram> {
    let (kind, version) = match *bytes {
        [kind @ (FRAME | GOODBYE | ENCRYPTED | KIND_HELLO), version, ..] => (kind, version),
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
    let content = match kind {
        FRAME if usize::from(header) <= HEAD.min(frame.len()) => Content::Frame { tag, header },
        GOODBYE if tag == 0 && header == 0 && frame.is_empty() => Content::Goodbye,
        _ => return Err(BadDatagram::Malformed),
    };
    Ok(Datagram::Plain { index: u32::from_le_bytes([a, b, c, d]), proof: *proof, content, frame })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let content = Content::Frame { tag: 0x40, header: 3 };
        assert_eq!(prefix_start(content, 0x0102_0304), [b'F', 2, 0x40, 3, 4, 3, 2, 1]);
        assert_eq!(prefix_start(Content::Goodbye, 9), [b'B', 2, 0, 0, 9, 0, 0, 0]);
        let sealed = &[9; SEALED][..];
        let bytes = [&b"E\x02\0\0\x04\x03\x02\x01\x08\0\0\0\0\0\0\0"[..], sealed].concat();
        assert_eq!(bytes[..PREFIX], sealed_prefix(0x0102_0304, 8));
        assert_eq!(read(&bytes), Ok(Datagram::Sealed { index: 0x0102_0304, number: 8, sealed }));
        assert_eq!(inner_prefix(content), *b"F\x40\x03\0");
        assert_eq!(read_inner(b"F\x40\x03\0abcd"), Ok((content, &b"abcd"[..])));
        assert_eq!(read_inner(&inner_prefix(Content::Goodbye)), Ok((Content::Goodbye, &[][..])));
        let bytes = b"F\x02\x40\x03\x04\x03\x02\x01PROOF..!abcd";
        let (index, frame) = (0x0102_0304, &b"abcd"[..]);
        assert_eq!(read(bytes), Ok(Datagram::Plain { index, proof: *b"PROOF..!", content, frame }));
    }

    #[test]
    fn malformed_datagrams_are_refused() {
        let malformed = Err(BadDatagram::Malformed);
        assert_eq!(read(&[]), Err(BadDatagram::Foreign));
        assert_eq!(read(b"GET / HTTP/1.1\r\n\r\n"), Err(BadDatagram::Foreign));
        assert_eq!(read(b"F\x01.............."), Err(BadDatagram::Version(1)));
        assert_eq!(read(b"F\x02\x40\x03\x04\x03\x02\x01PROOF.."), malformed, "truncated");
        assert_eq!(read(b"F\x02\x40\x05\x04\x03\x02\x01PROOF..!abcd"), malformed, "a header longer than the frame");
        let mut long = [0; 200];
        long[..4].copy_from_slice(b"F\x02\x40\x39");
        assert_eq!(read(&long), malformed, "a header longer than HEAD");
        assert_eq!(read(b"B\x02\0\0....PROOF..!a"), malformed, "a goodbye with a frame");
        assert_eq!(read(b"B\x02\x01\0....PROOF..!"), malformed, "a goodbye with a tag");
        assert_eq!(
            read(&[&sealed_prefix(1, 2)[..], &[0; SEALED - 1]].concat()),
            malformed,
            "shorter than any sealed part"
        );
        assert_eq!(read(&[&b"E\x02\0\x01"[..], &[0; 40]].concat()), malformed, "a header outside of the sealed part");
        for bad in [&b"F\x40\x01\0"[..], b"F\x40\0\x01", b"B\0\0\0a", b"B\x01\0\0", b"X\0\0\0", b"F\x40\0"] {
            assert_eq!(read_inner(bad), Err(BadDatagram::Malformed));
        }
        assert_eq!(read(b"H\x02"), malformed);
        assert_eq!(read(&[&b"H\x02"[..], &[0; HELLO - 1]].concat()), malformed, "a hello too long");
    }
}
