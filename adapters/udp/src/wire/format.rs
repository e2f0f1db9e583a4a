//! The protocol's version, and the reasons to drop a datagram.

use std::fmt;

use towline_crypt::MESSAGE;

/// Version of cards, hellos and datagrams.
pub const VERSION: u8 = 2;
/// Bytes of a hello.
pub const HELLO: usize = 108 + MESSAGE;
/// The first byte of a hello.
pub(crate) const KIND_HELLO: u8 = b'H';

/// Why bytes are not a datagram of this protocol.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadDatagram {
    /// The first bytes are wrong: the sender is not a Towline process.
    Foreign,
    /// They have another version, which is given.
    Version(u8),
    /// A field has a value that it cannot have.
    Malformed,
}

impl fmt::Display for BadDatagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("the sender is not a Towline process"),
            Self::Version(version) => write!(
                f,
                "the sender has version {version} of the udp protocol, this rank has version {VERSION}: use one version of \
                 Towline for all ranks"
            ),
            Self::Malformed => f.write_str("the datagram is malformed"),
        }
    }
}

impl std::error::Error for BadDatagram {}

towline_core::debug_as_display!(BadDatagram);
