//! What a link puts on the wire; specified in `WIRE.md`.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::Checksum;
use crate::rail::{HEAD, Origin};

/// Tag of the frames of links' own.
pub const TAG: u8 = 0x11;
/// Tag of a frame that was given to another link first.
pub const MOVED: u8 = 0x12;

/// What a frame begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    /// Low half-word of the frame's number; in an ack that of the probe which it answers, or how many frames came twice.
    pub number: U16,
    /// Low half-word of the first number that did not come from the receiver of this frame. In a moved frame, which acknowledges
    /// nothing, the second half-word of its number on the link that it was given to first.
    pub ack: U16,
    /// Over what tells the frame apart, and its first bytes.
    pub head_check: U32,
    /// Over its bytes from [`HEAD`] on.
    pub body_check: U32,
}

/// What stands behind the header in a frame with tag [`MOVED`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Prefix {
    /// The sender's name of the link that it was given to first.
    pub link: u8,
    /// The frame's own tag.
    pub tag: u8,
    /// Low half-word of its number there.
    pub number: U16,
}

impl Prefix {
    pub const fn new(origin: Origin, tag: u8) -> Self {
        Self { link: origin.link, tag, number: U16::new(origin.number as u16) }
    }

    /// With the header of the same frame.
    pub const fn origin(&self, header: &Header) -> Origin {
        Origin { link: self.link, number: (header.ack.get() as u32) << 16 | self.number.get() as u32 }
    }
}

/// A greeting, behind the header: who I am, and whom I know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Hello {
    /// [`Kind::Hello`].
    pub kind: u8,
    /// Zero.
    pub reserved: u8,
    /// Frames that the sender of this takes beyond what it acknowledges, at most.
    pub window: U16,
    /// Counts the times that the sender has added a peer: a peer that is forgotten and added again is another.
    pub session: U64,
    /// Number of the sender's first frame.
    pub first: U64,
    /// The session that the sender knows the receiver by; 0 for none.
    pub seen: U64,
}

/// Behind the header: what came, beyond the first that did not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ack {
    /// [`Kind::Ack`], [`Kind::Probe`], [`Kind::Bye`], [`Kind::GivenUp`], [`Kind::Wanted`], [`Kind::Void`] or [`Kind::Away`].
    pub kind: u8,
    /// Words of `came` that are meant.
    pub words: u8,
    /// Low half-word of the number that the first bit stands for.
    pub from: U16,
    /// A bit for each number: it came; or is wanted, void, or away.
    pub came: [U64; ACK_WORDS],
}

/// Words of an ack.
pub const ACK_WORDS: usize = 5;
/// Numbers that one ack tells of.
pub const ACK_SPAN: u64 = ACK_WORDS as u64 * 64;

/// What a frame of the link's own is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// [`Hello`].
    Hello = 1,
    /// [`Ack`].
    Ack = 2,
    /// An ack that asks for one.
    Probe = 3,
    /// An ack that is the last word.
    Bye = 4,
    /// The same, to a peer that is given up.
    GivenUp = 5,
    /// Numbers that did not come, or must come again, and for which there is room.
    Wanted = 6,
    /// Numbers of the sender of this that nothing will come with.
    Void = 7,
    /// Numbers of the sender of this whose frames another link brings.
    Away = 8,
}

impl Kind {
    pub const fn of(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Hello),
            2 => Some(Self::Ack),
            3 => Some(Self::Probe),
            4 => Some(Self::Bye),
            5 => Some(Self::GivenUp),
            6 => Some(Self::Wanted),
            7 => Some(Self::Void),
            8 => Some(Self::Away),
            _ => None,
        }
    }
}

/// Bytes of the header.
pub const HEADER: usize = size_of::<Header>();
/// Bytes of the prefix of a moved frame.
pub const PREFIX: usize = size_of::<Prefix>();
/// Bytes of an ack without any word.
pub const ACK: usize = size_of::<Ack>() - ACK_WORDS * 8;

const _: () = assert!(HEADER == 12 && PREFIX == 4 && HEADER + PREFIX + crate::rail::LINKED_HEAD == HEAD);
const _: () = assert!(HEADER + size_of::<Ack>() == HEAD && HEADER + size_of::<Hello>() <= HEAD);

/// Where the checks of a direction begin: with the two sides' incarnations and sessions, the sender's first.
pub fn seed<C: Checksum>(sums: &C, from: (u64, u64), to: (u64, u64)) -> u32 {
    let words = [from.0, from.1, to.0, to.1].map(U64::new);
    sums.sum(0, words.as_bytes())
}

/// The check of a frame whose first bytes are `head`, of `len` in all. The check itself counts as 0 in them.
pub fn head_check<C: Checksum>(sums: &C, seed: u32, tag: u8, len: u32, numbers: [u64; 2], head: &[u8]) -> u32 {
    #[derive(IntoBytes, Immutable, Unaligned)]
    #[repr(C)]
    struct Told {
        numbers: [U64; 2],
        len: U32,
        tag: u8,
        header: [u8; HEAD],
    }
    let mut told = Told { numbers: numbers.map(U64::new), len: U32::new(len), tag, header: [0; HEAD] };
    let count = head.len().min(HEAD);
    if let (Some(to), Some(from)) = (told.header.get_mut(..count), head.get(..count)) {
        // Of equal length: both were cut to `count`.
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    }
    if let Some(check) = told.header.get_mut(4..8) {
        check.fill(0);
    }
    let bytes = told.as_bytes();
    sums.sum(seed, bytes.get(..bytes.len().wrapping_sub(HEAD).wrapping_add(count)).unwrap_or(bytes))
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
        let ack = Ack { kind: Kind::Ack as u8, words: 1, from: U16::new(0x0203), came: [5, 0, 0, 0, 0].map(U64::new) };
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
        assert_eq!(head_check(&Crc32c, seed, 0x40, 20, [0x1_0102, 0x304], &head), check, "the check is not checked");
        for at in (0..20).filter(|at| !(4..8).contains(at)) {
            head[at] ^= 1;
            assert_ne!(head_check(&Crc32c, seed, 0x40, 20, [0x1_0102, 0x304], &head), check);
            head[at] ^= 1;
        }
    }

    const SEED: u32 = 0xf4a1_f712;
    const CHECK: u32 = 0x9478_0ffb;
}
