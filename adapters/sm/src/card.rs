//! The business card: what a peer must know to share memory with us. Little-endian, 80 bytes.

use towline_core::rail::Unreachable;

use crate::host::process::{Place, Process};

const MAGIC: [u8; 3] = *b"tsm";
const VERSION: u8 = 1;
/// Bytes of a card.
pub const LEN: usize = 80;

/// A card's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Card {
    /// The host and its file system in memory.
    pub place: Place,
    /// Whose files: the effective user.
    pub user: u32,
    /// The rank.
    pub rank: u32,
    /// The job.
    pub job: u64,
    /// The incarnation; the board must carry the same.
    pub nonce: u64,
    /// The process.
    pub process: Process,
}

impl Card {
    /// The card as bytes.
    pub fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&MAGIC);
        put(&[VERSION]);
        put(&self.user.to_le_bytes());
        put(&self.place.boot);
        put(&self.place.device.to_le_bytes());
        put(&self.place.inode.to_le_bytes());
        put(&self.job.to_le_bytes());
        put(&self.nonce.to_le_bytes());
        put(&self.process.born.to_le_bytes());
        put(&self.process.space.to_le_bytes());
        put(&self.process.pid.to_le_bytes());
        put(&self.rank.to_le_bytes());
        bytes
    }

    /// Reads a card that came from anywhere.
    ///
    /// # Errors
    /// `NoCard` for none, `BadCard` for what is none, `Version` for one of another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreachable> {
        fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Unreachable> {
            let (field, after) = rest.split_first_chunk::<N>().ok_or(Unreachable::BadCard)?;
            *rest = after;
            Ok(*field)
        }
        if bytes.is_empty() {
            return Err(Unreachable::NoCard);
        }
        let rest = &mut &bytes[..];
        if take(rest)? != MAGIC {
            return Err(Unreachable::BadCard);
        }
        if take(rest)? != [VERSION] {
            return Err(Unreachable::Version);
        }
        let user = u32::from_le_bytes(take(rest)?);
        let boot = take(rest)?;
        let (device, inode) = (u64::from_le_bytes(take(rest)?), u64::from_le_bytes(take(rest)?));
        let (job, nonce) = (u64::from_le_bytes(take(rest)?), u64::from_le_bytes(take(rest)?));
        let (born, space) = (u64::from_le_bytes(take(rest)?), u64::from_le_bytes(take(rest)?));
        let (pid, rank) = (u32::from_le_bytes(take(rest)?), u32::from_le_bytes(take(rest)?));
        if !rest.is_empty() {
            return Err(Unreachable::BadCard);
        }
        let (place, process) = (Place { boot, device, inode }, Process { pid, born, space });
        Ok(Self { place, user, rank, job, nonce, process })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card() -> Card {
        Card {
            place: Place { boot: [7; 16], device: 0x19, inode: 1 },
            user: 1000,
            rank: 0x0102_0304,
            job: u64::MAX - 1,
            nonce: 3,
            process: Process { pid: 99, born: 12345, space: 0xF000_0000 },
        }
    }

    #[test]
    fn x1_a_card_survives_its_bytes_and_these_are_little_endian() {
        let bytes = card().encode();
        assert_eq!(Card::decode(&bytes), Ok(card()));
        assert_eq!(&bytes[76..], [4, 3, 2, 1]);
    }

    #[test]
    fn every_shorter_or_longer_card_is_refused() {
        let bytes = card().encode();
        assert_eq!(Card::decode(&[]), Err(Unreachable::NoCard));
        for len in 1..LEN {
            assert_eq!(Card::decode(&bytes[..len]), Err(Unreachable::BadCard), "{len}");
        }
        assert_eq!(Card::decode(&[&bytes[..], &[0]].concat()), Err(Unreachable::BadCard));
        let mut other = bytes;
        other[3] = 2;
        assert_eq!(Card::decode(&other), Err(Unreachable::Version));
    }
}
