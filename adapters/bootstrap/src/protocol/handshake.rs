//! The handshake, in which rank and server prove to each other that they hold the job's key. The crate's documentation
//! gives the bytes.

use crate::JobKey;

pub(crate) const OPENING: usize = 64;
pub(crate) const ANSWER: usize = 68;
pub(crate) const PROOF: usize = 32;
const MAGIC: [u8; 8] = *b"TOWLBOOT";
/// Version 2 added the frames of reports and of messages that were not received.
const VERSION: u16 = 2;

/// The rank number of a caller that only checks whether the server holds the key, and then disconnects.
pub(crate) const PROBE: u32 = u32::MAX;

/// Why a server refuses an opening.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Refusal {
    Foreign = 1,
    Version = 2,
    Job = 3,
    Rank = 4,
    Size = 5,
}

impl Refusal {
    pub(crate) const fn why(code: u32) -> &'static str {
        match code {
            1 => "it expects another protocol: the address does not belong to a Towline server of this version",
            2 => "it uses another version of the protocol: use the same version of Towline for launcher and ranks",
            3 => "it serves another job: check TOWLINE_JOB and TOWLINE_ROOT",
            4 => "the job has no such rank: check TOWLINE_RANK",
            5 => "the job has another size: check TOWLINE_SIZE",
            _ => "the reason is unknown to this version of Towline",
        }
    }
}

/// The first message of a rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Opening {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) job: u64,
    pub(crate) nonce: [u8; 32],
}

impl Opening {
    pub(crate) fn encode(&self) -> [u8; OPENING] {
        let mut bytes = [0; OPENING];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.rank.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.size.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.job.to_le_bytes());
        bytes[32..].copy_from_slice(&self.nonce);
        bytes
    }

    pub(crate) fn parse(bytes: &[u8; OPENING]) -> Result<Self, Refusal> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[..8] != MAGIC {
            return Err(Refusal::Foreign);
        }
        if bytes[8..10] != VERSION.to_le_bytes() {
            return Err(Refusal::Version);
        }
        if bytes[10..12] != [0; 2] || word(20) != 0 {
            return Err(Refusal::Foreign);
        }
        let mut nonce = [0; 32];
        nonce.copy_from_slice(&bytes[32..]);
        let job = u64::from(word(24)) | u64::from(word(28)) << 32;
        Ok(Self { rank: word(12), size: word(16), job, nonce })
    }
}

/// Computes the proofs and the session key from an opening and the server's nonce.
pub(crate) struct Exchange<'a> {
    pub(crate) key: &'a JobKey,
    pub(crate) opening: &'a [u8; OPENING],
    pub(crate) nonce: &'a [u8; 32],
}

impl Exchange<'_> {
    fn parts<'b>(&'b self, label: &'b [u8]) -> [&'b [u8]; 3] {
        [label, self.opening, self.nonce]
    }

    pub(crate) fn server_proof(&self) -> [u8; PROOF] {
        self.key.mac(&self.parts(b"towline server 1"))
    }

    pub(crate) fn rank_proof(&self) -> [u8; PROOF] {
        self.key.mac(&self.parts(b"towline rank 1"))
    }

    pub(crate) fn server_proves(&self, proof: &[u8]) -> bool {
        proof.len() == PROOF && self.key.verify(&self.parts(b"towline server 1"), proof)
    }

    pub(crate) fn rank_proves(&self, proof: &[u8]) -> bool {
        proof.len() == PROOF && self.key.verify(&self.parts(b"towline rank 1"), proof)
    }

    pub(crate) fn session(&self) -> JobKey {
        JobKey::new(self.key.mac(&self.parts(b"towline session 1")))
    }
}

/// Encodes the server's answer to an opening. A `status` other than 0 is a [`Refusal`].
pub(crate) fn answer(status: u32, nonce: &[u8; 32], proof: &[u8; PROOF]) -> [u8; ANSWER] {
    let mut bytes = [0; ANSWER];
    bytes[..4].copy_from_slice(&status.to_le_bytes());
    bytes[4..36].copy_from_slice(nonce);
    bytes[36..].copy_from_slice(proof);
    bytes
}

/// Splits an answer into status, nonce and proof.
pub(crate) fn parse_answer(bytes: &[u8; ANSWER]) -> (u32, [u8; 32], [u8; PROOF]) {
    let (mut status, mut nonce, mut proof) = ([0; 4], [0; 32], [0; PROOF]);
    status.copy_from_slice(&bytes[..4]);
    nonce.copy_from_slice(&bytes[4..36]);
    proof.copy_from_slice(&bytes[36..]);
    (u32::from_le_bytes(status), nonce, proof)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openings_are_parsed_back_and_foreign_ones_are_refused() {
        let opening = Opening { rank: 1, size: 2, job: 0x0102_0304_0506_0708, nonce: [9; 32] };
        let bytes = opening.encode();
        assert_eq!(bytes[..32], *b"TOWLBOOT\x02\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01");
        assert_eq!(Opening::parse(&bytes), Ok(opening));
        let with = |at: usize, value: u8| {
            let mut bytes = bytes;
            bytes[at] = value;
            Opening::parse(&bytes).err()
        };
        assert_eq!(with(0, b'G'), Some(Refusal::Foreign));
        assert_eq!(with(8, 1), Some(Refusal::Version));
        assert_eq!(with(10, 1), Some(Refusal::Foreign));
        assert_eq!(with(23, 1), Some(Refusal::Foreign));
    }

    #[test]
    fn proofs_hold_for_one_side_one_key_and_one_pair_of_nonces() {
        let (key, opening, nonce) = (JobKey::new([1; 32]), [2; OPENING], [3; 32]);
        let right = Exchange { key: &key, opening: &opening, nonce: &nonce };
        assert!(right.server_proves(&right.server_proof()) && right.rank_proves(&right.rank_proof()));
        assert!(!right.server_proves(&right.rank_proof()) && !right.rank_proves(&right.server_proof()));
        assert!(!right.rank_proves(&right.rank_proof()[..16]) && !right.rank_proves(&[]));
        let other = JobKey::new([4; 32]);
        assert!(!Exchange { key: &other, ..right }.server_proves(&right.server_proof()));
        assert!(!Exchange { opening: &[0; OPENING], ..right }.server_proves(&right.server_proof()));
        assert!(!Exchange { nonce: &[0; 32], ..right }.rank_proves(&right.rank_proof()));
    }
}
