//! The prefix of eight bytes before each frame on a connection. No code here uses a socket.
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | length of the frame, which is header and body, little-endian |
//! | 4 | active-message tag |
//! | 5 | length of the header, at most [`HEAD`] |
//! | 6 | kind: 0 for a frame, 1 for a goodbye, whose other fields are zero |
//! | 7 | [`MARK`], which shows where a reader has lost the boundaries of frames |

use towline_core::rail::HEAD;

/// Bytes of a prefix.
pub const PREFIX: usize = 8;
/// Last byte of every prefix.
pub const MARK: u8 = 0xA7;
/// Longest frame that a prefix may announce, in bytes.
pub const MAX_FRAME: u32 = 1 << 30;

/// The content of a prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Announced {
    /// A frame follows.
    Frame {
        /// Bytes of header and body.
        len: u32,
        /// The active-message tag.
        tag: u8,
        /// Bytes of the header.
        header: u8,
    },
    /// The peer ends the connection normally and sends nothing more.
    Goodbye,
}

/// The prefix of a goodbye.
pub const GOODBYE: [u8; PREFIX] = [0, 0, 0, 0, 0, 0, 1, MARK];

/// The prefix of a frame.
#[inline]
pub const fn encode(len: u32, tag: u8, header: u8) -> [u8; PREFIX] {
    let [a, b, c, d] = len.to_le_bytes();
    [a, b, c, d, tag, header, 0, MARK]
}

/// Reads a prefix; `None` for bytes that [`encode`] does not write and that are not [`GOODBYE`].
///
/// ```
/// use towline_tcp::framing::{Announced, decode, encode};
///
/// let prefix = encode(100, 0x40, 24);
/// assert_eq!(decode(prefix), Some(Announced::Frame { len: 100, tag: 0x40, header: 24 }));
/// ```
#[inline]
pub const fn decode(prefix: [u8; PREFIX]) -> Option<Announced> {
    let [a, b, c, d, tag, header, kind, mark] = prefix;
    let len = u32::from_le_bytes([a, b, c, d]);
    match (kind, mark) {
        (0, MARK) if len <= MAX_FRAME && header as usize <= HEAD && header as u32 <= len => {
            Some(Announced::Frame { len, tag, header })
        }
        (1, MARK) if len == 0 && tag == 0 && header == 0 => Some(Announced::Goodbye),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        assert_eq!(encode(0x0102_0304, 0x40, 24), [4, 3, 2, 1, 0x40, 24, 0, 0xA7]);
        assert_eq!(decode(GOODBYE), Some(Announced::Goodbye));
    }

    #[test]
    fn malformed_prefixes_are_refused() {
        for bad in [
            [0; 8],
            *b"GET / HT",
            [0, 0, 0, 0x41, 0, 0, 0, MARK],  // longer than MAX_FRAME
            [9, 0, 0, 0, 0, 10, 0, MARK],    // header longer than the frame
            [99, 0, 0, 0, 0, 57, 0, MARK],   // header longer than HEAD
            [0, 0, 0, 0, 0, 0, 2, MARK],     // unknown kind
            [1, 0, 0, 0, 0, 0, 1, MARK],     // goodbye with a length
            [0, 0, 0, 0, 0, 0, 0, MARK ^ 1], // wrong mark
        ] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }
}
