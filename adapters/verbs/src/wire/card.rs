//! The card, with the data that a peer needs to reach a rail. No code here calls a device.
//!
//! | bytes | content, little-endian |
//! |---|---|
//! | 0..4 | `"twvb"` |
//! | 4 | [`VERSION`] |
//! | 5 | link |
//! | 6 | [kind of its address](GidKind): 0 InfiniBand, 1 RoCE v1, 2 RoCE v2 |
//! | 7 | path MTU of its port: 1 for 256 bytes, 2 for 512, and so on up to 5 |
//! | 8..16 | job |
//! | 16..24 | instance: drawn at random by each rail |
//! | 24..28 | rank |
//! | 28..32 | number of the queue pair that receives its hellos |
//! | 32..36 | Q_Key of that queue pair |
//! | 36..40 | bytes of the longest frame that the rail receives |
//! | 40..56 | GID |
//! | 56..58 | LID |
//! | 58 | reads and atomics of one peer that the device executes at a time; 0: none |
//! | 59 | zero |

use towline_core::rail::Unreachable;
use towline_net::fields::{bytes_at, u32_at, u64_at};

use crate::address::{Gid, GidKind, Mtu};

/// Version of the card, and of the protocol.
pub const VERSION: u8 = 2;

/// Bytes of a card.
pub const BYTES: usize = 60;

const MAGIC: &[u8; 4] = b"twvb";

/// The content of a card.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Card {
    /// The link.
    pub link: u8,
    /// The network that its GID belongs to.
    pub kind: GidKind,
    /// The path MTU of its port.
    pub mtu: Mtu,
    /// The job.
    pub job: u64,
    /// The instance of the rail, drawn at random.
    pub instance: u64,
    /// The rank.
    pub rank: u32,
    /// Number of the queue pair that receives its hellos.
    pub hello_queue: u32,
    /// Q_Key of that queue pair.
    pub hello_key: u32,
    /// Bytes of the longest frame that the rail receives.
    pub longest: u32,
    /// Its GID.
    pub gid: Gid,
    /// Its LID, the address within an InfiniBand subnet; zero with RoCE.
    pub lid: u16,
    /// Reads and atomics of one peer that the device executes at a time; 0 where it executes none.
    pub reads: u8,
}

impl Card {
    /// The bytes of the card.
    pub fn encode(&self) -> [u8; BYTES] {
        let mut out = [0; BYTES];
        out[..4].copy_from_slice(MAGIC);
        out[4..8].copy_from_slice(&[VERSION, self.link, self.kind as u8, self.mtu as u8]);
        out[8..16].copy_from_slice(&self.job.to_le_bytes());
        out[16..24].copy_from_slice(&self.instance.to_le_bytes());
        out[24..28].copy_from_slice(&self.rank.to_le_bytes());
        out[28..32].copy_from_slice(&self.hello_queue.to_le_bytes());
        out[32..36].copy_from_slice(&self.hello_key.to_le_bytes());
        out[36..40].copy_from_slice(&self.longest.to_le_bytes());
        out[40..56].copy_from_slice(&self.gid.0);
        out[56..58].copy_from_slice(&self.lid.to_le_bytes());
        out[58] = self.reads;
        out
    }

    /// Reads a card, from any source.
    ///
    /// # Errors
    /// [`Unreachable::NoCard`] for no bytes, [`Unreachable::Version`] for a card of another version, [`Unreachable::BadCard`] for
    /// bytes that are not a card.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreachable> {
        if bytes.is_empty() {
            return Err(Unreachable::NoCard);
        }
        if bytes.len() < 5 || bytes[..4] != MAGIC[..] {
            return Err(Unreachable::BadCard);
        }
        if bytes[4] != VERSION {
            return Err(Unreachable::Version);
        }
        let Ok(bytes) = <&[u8; BYTES]>::try_from(bytes) else { return Err(Unreachable::BadCard) };
        let (Some(kind), Some(mtu)) = (GidKind::of(bytes[6]), Mtu::of(bytes[7])) else {
            return Err(Unreachable::BadCard);
        };
        let card = Self {
            link: bytes[5],
            kind,
            mtu,
            job: u64_at(bytes, 8),
            instance: u64_at(bytes, 16),
            rank: u32_at(bytes, 24),
            hello_queue: u32_at(bytes, 28),
            hello_key: u32_at(bytes, 32),
            longest: u32_at(bytes, 36),
            gid: Gid(bytes_at(bytes, 40)),
            lid: u16::from_le_bytes(bytes_at(bytes, 56)),
            reads: bytes[58],
        };
        // Queue pairs have numbers of 24 bits, of which the first two belong to the subnet manager.
        let possible = (2..1 << 24).contains(&card.hello_queue) && !card.gid.is_multicast();
        if bytes[59] != 0 || !possible || (card.kind != GidKind::InfiniBand && card.gid.is_zero()) {
            return Err(Unreachable::BadCard);
        }
        Ok(card)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card() -> Card {
        Card {
            link: 2,
            kind: GidKind::RoceV2,
            mtu: Mtu::Bytes1024,
            job: 1,
            instance: 0x0807_0605_0403_0201,
            rank: 4,
            hello_queue: 0x11,
            hello_key: 0x2233,
            longest: 0x1_0000,
            gid: Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]),
            lid: 7,
            reads: 16,
        }
    }

    #[test]
    fn x1_golden_bytes() {
        let mut golden = b"twvb\x02\x02\x02\x03\x01\0\0\0\0\0\0\0\x01\x02\x03\x04\x05\x06\x07\x08\x04\0\0\0".to_vec();
        golden.extend_from_slice(
            b"\x11\0\0\0\x33\x22\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xC0\0\x02\x01\x07\0\x10\0",
        );
        assert_eq!(card().encode()[..], golden);
        assert_eq!(Card::decode(&golden), Ok(card()));
    }

    #[test]
    fn bad_cards_are_distinguished() {
        let good = card().encode();
        assert_eq!(Card::decode(&[]), Err(Unreachable::NoCard));
        for len in 1..good.len() {
            assert_eq!(Card::decode(&good[..len]), Err(Unreachable::BadCard), "{len} bytes");
        }
        for (at, value, answer) in [
            (0, b'x', Unreachable::BadCard),
            (4, 9, Unreachable::Version),
            (6, 3, Unreachable::BadCard),
            (7, 0, Unreachable::BadCard),
            (7, 6, Unreachable::BadCard),
            (28, 1, Unreachable::BadCard),
            (31, 1, Unreachable::BadCard),
            (40, 0xff, Unreachable::BadCard),
            (59, 1, Unreachable::BadCard),
        ] {
            let mut bytes = good;
            bytes[at] = value;
            assert_eq!(Card::decode(&bytes), Err(answer), "byte {at}");
        }
        let nowhere = Card { gid: Gid([0; 16]), ..card() };
        assert_eq!(Card::decode(&nowhere.encode()), Err(Unreachable::BadCard), "RoCE without an address");
    }
}
