//! The bytes that a link puts on the wire. `WIRE.md` specifies them.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::Checksum;
use crate::convertor::copy_slice;
use crate::rail::{HEAD, Origin};

/// The tag of control frames, which links send to each other.
pub const TAG: u8 = 0x11;
/// The tag of a frame that migrated from another link.
pub const MIGRATED: u8 = 0x12;
/// Whether frames migrate between links: the feature `migration`. Without it, what a peer sends about such frames is malformed, and code
/// behind this constant is not linked.
pub const MIGRATION: bool = cfg!(feature = "migration");

/// Whether links ask for frames by their numbers: the feature `nacks`. The time-outs of the sender do without.
pub const NACKS: bool = cfg!(feature = "nacks");

/// Whether a frame with this tag has migrated from another link.
pub const fn is_migrated(tag: u8) -> bool {
    MIGRATION && tag == MIGRATED
}

/// The first bytes of each frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    /// The low half-word of the frame's number. In a control frame: the number of the probe that it is or that it answers; in
    /// [`Kind::Gaps`] and [`Kind::Migrated`] the low half-word of the first number; in a hello 0; in others the count of frames
    /// that arrived twice.
    pub number: U16,
    /// The acknowledgement: the low half-word of the first number that did not arrive from the receiver of this frame. A
    /// migrated frame acknowledges nothing. Its field has the second half-word of its number on the link that it was given to
    /// first.
    pub ack: U16,
    /// The checksum of the first bytes and of everything that distinguishes the frame from others. See [`head_check`].
    pub head_check: U32,
    /// The checksum of the bytes from [`HEAD`] on. In a control frame: 1 if it answers a probe, else 0.
    pub body_check: U32,
}

/// The bytes after the header in a frame with tag [`MIGRATED`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Prefix {
    /// The sender's name of the link that the frame was given to first.
    pub link: u8,
    /// The frame's own tag.
    pub tag: u8,
    /// The low half-word of the frame's number on that link.
    pub number: U16,
}

impl Prefix {
    pub const fn new(origin: Origin, tag: u8) -> Self {
        Self { link: origin.link, tag, number: U16::new(origin.number as u16) }
    }

    /// The origin, from the prefix and the header of the same frame.
    pub const fn origin(&self, header: &Header) -> Origin {
        Origin { link: self.link, number: (header.ack.get() as u32) << 16 | self.number.get() as u32 }
    }
}

/// A hello, after the header: the sender's session, and the receiver's session as the sender knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Hello {
    /// [`Kind::Hello`].
    pub kind: u8,
    /// Zero.
    pub reserved: u8,
    /// The receive window: how many numbers beyond its acknowledgement the sender of the hello accepts.
    pub window: U16,
    /// The sender's session: how many times its link has added a peer. A peer that was deleted and added again has another
    /// session.
    pub session: U64,
    /// The number of the sender's first frame.
    pub first: U64,
    /// The receiver's session as the sender knows it; 0: the sender does not know it.
    pub seen: U64,
}

/// A control frame with a bit for each number, after the header. In an acknowledgement the bits are the numbers that arrived,
/// beyond the first one that did not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ack {
    /// [`Kind::Ack`], [`Kind::Probe`], [`Kind::Goodbye`], [`Kind::GivenUp`], [`Kind::Nack`], [`Kind::Gaps`] or
    /// [`Kind::Migrated`].
    pub kind: u8,
    /// How many words of `bits` are sent.
    pub words: u8,
    /// The low half-word of the number that the first bit stands for.
    pub from: U16,
    /// A bit for each number. By the kind, it means that the number arrived, is missing, is a gap, or has migrated.
    pub bits: [U64; ACK_WORDS],
}

/// Words of an acknowledgement.
pub const ACK_WORDS: usize = 5;
/// Numbers that one acknowledgement covers.
pub const ACK_SPAN: u64 = ACK_WORDS as u64 * 64;

/// The kinds of control frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// [`Hello`].
    Hello = 1,
    /// [`Ack`].
    Ack = 2,
    /// An acknowledgement that asks for one.
    Probe = 3,
    /// An acknowledgement that is the last frame of the link.
    Goodbye = 4,
    /// The last frame to a peer that is given up.
    GivenUp = 5,
    /// The numbers that are missing, or must arrive again, and for which there is room.
    Nack = 6,
    /// Numbers of the sender with which nothing will arrive.
    Gaps = 7,
    /// Numbers of the sender whose frames another link brings.
    Migrated = 8,
}

impl Kind {
    pub const fn of(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Hello),
            2 => Some(Self::Ack),
            3 => Some(Self::Probe),
            4 => Some(Self::Goodbye),
            5 => Some(Self::GivenUp),
            6 if NACKS => Some(Self::Nack),
            7 if MIGRATION => Some(Self::Gaps),
            8 if MIGRATION => Some(Self::Migrated),
            _ => None,
        }
    }
}

/// Bytes of the header.
pub const HEADER: usize = size_of::<Header>();
/// Bytes of the prefix of a migrated frame.
pub const PREFIX: usize = size_of::<Prefix>();
/// Bytes of an acknowledgement without any word.
pub const ACK: usize = size_of::<Ack>() - ACK_WORDS * 8;

const _: () = assert!(HEADER == 12 && PREFIX == 4 && HEADER + PREFIX + crate::rail::LINKED_HEAD == HEAD);
const _: () = assert!(HEADER + size_of::<Ack>() == HEAD && HEADER + size_of::<Hello>() <= HEAD);

/// The seed of the checks of one direction: the checksum of the incarnations and sessions of both sides, the sender's first.
pub fn seed<C: Checksum>(checksum: &C, from: (u64, u64), to: (u64, u64)) -> u32 {
    let words = [from.0, from.1, to.0, to.1].map(U64::new);
    checksum.sum(0, words.as_bytes())
}

/// The check of a frame of `len` bytes whose first bytes are `head`. The bytes of the check itself count as 0. `numbers` are
/// the full numbers whose low half-words are in the header.
pub fn head_check<C: Checksum>(checksum: &C, seed: u32, tag: u8, len: u32, numbers: [u64; 2], head: &[u8]) -> u32 {
    #[derive(IntoBytes, Immutable, Unaligned)]
    #[repr(C)]
    struct Checked {
        numbers: [U64; 2],
        len: U32,
        tag: u8,
        header: [u8; HEAD],
    }
    let mut checked = Checked { numbers: numbers.map(U64::new), len: U32::new(len), tag, header: [0; HEAD] };
    let count = copy_slice(&mut checked.header, head);
    if let Some(check) = checked.header.get_mut(4..8) {
        check.fill(0);
    }
    let bytes = checked.as_bytes();
    checksum.sum(seed, bytes.get(..bytes.len().wrapping_sub(HEAD).wrapping_add(count)).unwrap_or(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::checksum::Crc32c;
    use super::*;

    /// The bytes of `WIRE.md`, the same on hosts of either byte order.
    #[test]
    fn p33_golden_bytes_of_a_link() {
        let header = Header {
            number: U16::new(0x0102),
            ack: U16::new(0x0304),
            head_check: U32::new(0x0506_0708),
            body_check: U32::new(0x090a_0b0c),
        };
        assert_eq!(header.as_bytes(), [2, 1, 4, 3, 8, 7, 6, 5, 12, 11, 10, 9]);
        let origin = Origin { link: 7, number: 0x0304_0102 };
        let prefix = Prefix::new(origin, 0x40);
        assert_eq!(prefix.as_bytes(), [7, 0x40, 2, 1]);
        assert_eq!(prefix.origin(&header), origin);
        let hello = Hello {
            kind: Kind::Hello as u8,
            reserved: 0,
            window: U16::new(0x0100),
            session: U64::new(2),
            first: U64::new(0xfffe),
            seen: U64::new(3),
        };
        #[rustfmt::skip]
        assert_eq!(hello.as_bytes(), [
            1, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0xfe, 0xff, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
        ]);
        let ack = Ack { kind: Kind::Ack as u8, words: 1, from: U16::new(0x0203), bits: [5, 0, 0, 0, 0].map(U64::new) };
        assert_eq!(ack.as_bytes()[..ACK + 8], [2, 1, 3, 2, 5, 0, 0, 0, 0, 0, 0, 0]);
        for byte in 0..=u8::MAX {
            assert!(Kind::of(byte).is_none_or(|kind| kind as u8 == byte));
        }
        let seed = seed(&Crc32c, (1, 2), (3, 4));
        let mut head = [0u8; 20];
        header.as_bytes().iter().zip(&mut head).for_each(|(from, to)| *to = *from);
        let check = head_check(&Crc32c, seed, 0x40, 20, [0x1_0102, 0x304], &head);
        assert_eq!((seed, check), (SEED, CHECK));
        head[5] ^= 0xff;
        assert_eq!(
            head_check(&Crc32c, seed, 0x40, 20, [0x1_0102, 0x304], &head),
            check,
            "the check does not cover itself"
        );
        for at in (0..20).filter(|at| !(4..8).contains(at)) {
            head[at] ^= 1;
            assert_ne!(head_check(&Crc32c, seed, 0x40, 20, [0x1_0102, 0x304], &head), check);
            head[at] ^= 1;
        }
    }

    const SEED: u32 = 0xf4a1_f712;
    const CHECK: u32 = 0x9478_0ffb;
}
