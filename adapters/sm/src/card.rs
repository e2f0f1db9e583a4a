//! The card, with the data that a peer needs to share memory with us. Little-endian, 80 bytes.
//!
//! | bytes | content |
//! |---|---|
//! | 0..3 | `"tsm"` |
//! | 3 | version |
//! | 4..8 | effective user id |
//! | 8..24 | the kernel's boot id |
//! | 24..40 | device and inode of the directory of segments |
//! | 40..48 | job |
//! | 48..56 | incarnation, drawn at random |
//! | 56..64 | start time of the process, in clock ticks since boot |
//! | 64..72 | inode of the process id namespace |
//! | 72..76 | process id |
//! | 76..80 | rank |

use towline_core::rail::Unreachable;

use crate::host::{HostId, Process};

const MAGIC: [u8; 3] = *b"tsm";
const VERSION: u8 = 1;
/// Bytes of a card.
pub const LEN: usize = 80;

/// The content of a card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Card {
    /// The host and its file system in memory.
    pub host: HostId,
    /// The owner of the files: the effective user id.
    pub user: u32,
    /// The rank.
    pub rank: u32,
    /// The job.
    pub job: u64,
    /// The incarnation; the control segment must carry the same.
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
        put(&self.host.boot);
        put(&self.host.device.to_le_bytes());
        put(&self.host.inode.to_le_bytes());
        put(&self.job.to_le_bytes());
        put(&self.nonce.to_le_bytes());
        put(&self.process.start_time.to_le_bytes());
        put(&self.process.pid_namespace.to_le_bytes());
        put(&self.process.pid.to_le_bytes());
        put(&self.rank.to_le_bytes());
        bytes
    }

    /// Reads a card, from any source.
    ///
    /// # Errors
    /// `NoCard` for no bytes, `BadCard` for bytes that are not a card, `Version` for a card of another version.
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
        let (start_time, pid_namespace) = (u64::from_le_bytes(take(rest)?), u64::from_le_bytes(take(rest)?));
        let (pid, rank) = (u32::from_le_bytes(take(rest)?), u32::from_le_bytes(take(rest)?));
        if !rest.is_empty() {
            return Err(Unreachable::BadCard);
        }
        let (host, process) = (HostId { boot, device, inode }, Process { pid, start_time, pid_namespace });
        Ok(Self { host, user, rank, job, nonce, process })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card() -> Card {
        Card {
            host: HostId { boot: [7; 16], device: 0x19, inode: 1 },
            user: 1000,
            rank: 0x0102_0304,
            job: u64::MAX - 1,
            nonce: 3,
            process: Process { pid: 99, start_time: 12345, pid_namespace: 0xF000_0000 },
        }
    }

    #[test]
    fn x1_a_card_decodes_to_itself_and_is_little_endian() {
        let bytes = card().encode();
        assert_eq!(Card::decode(&bytes), Ok(card()));
        assert_eq!(&bytes[76..], [4, 3, 2, 1]);
    }

    #[test]
    fn cards_of_another_length_or_version_are_refused() {
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
