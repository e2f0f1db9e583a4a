//! What marks the datagrams of two ends that have met. Pure: no socket in here.
//!
//! Each direction has a secret of its own: HMAC-SHA256 under the job's key over ranks, instances and nonces of sender and
//! receiver, in this order, little-endian. Its first eight bytes are the mark; or it is the key of a code over each datagram:
//! the first eight bytes of HMAC-SHA256 over all of it but the code. Which, the hellos say: a code where either end wants it.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use towline_net::JobKey;

use crate::datagram::{PROOF, START};
use crate::hello::Nonce;

const LABEL: &[u8; 16] = b"towlineudp marks";

/// One end, as far as the secrets depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Side {
    /// Its rank.
    pub rank: u32,
    /// Its instance.
    pub instance: u64,
    /// Its challenge.
    pub nonce: Nonce,
}

/// What proves datagrams of one direction.
#[derive(Clone)]
pub struct Seal(Kind);

#[derive(Clone)]
enum Kind {
    Mark([u8; PROOF]),
    Code(Box<Hmac<Sha256>>),
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Mark(_) => "Seal(mark)",
            Kind::Code(_) => "Seal(code)",
        })
    }
}

impl Seal {
    /// For datagrams between these two, in this direction.
    ///
    /// ```
    /// use towline_net::JobKey;
    /// use towline_udp::session::auth::{Seal, Side};
    ///
    /// let side = |rank| Side { rank, instance: 7, nonce: [1; 16] };
    /// let seal = Seal::new(&JobKey::new([7; 32]), side(0), side(1), true);
    /// let proof = seal.proof(&[0; 8], b"frame");
    /// assert!(seal.accepts(&[0; 8], b"frame", &proof) && !seal.accepts(&[0; 8], b"phrase", &proof));
    /// ```
    pub fn new(key: &JobKey, from: Side, to: Side, signed: bool) -> Self {
        let side = |side: Side| {
            let mut bytes = [0; 28];
            bytes[..4].copy_from_slice(&side.rank.to_le_bytes());
            bytes[4..12].copy_from_slice(&side.instance.to_le_bytes());
            bytes[12..].copy_from_slice(&side.nonce);
            bytes
        };
        let secret = key.prove(LABEL, &[&side(from), &side(to), &[u8::from(signed)]]);
        if signed {
            let mut block = [0; 64];
            block[..32].copy_from_slice(&secret);
            return Self(Kind::Code(Box::new(Hmac::new(&block.into()))));
        }
        let [a, b, c, d, e, f, g, h, ..] = secret;
        Self(Kind::Mark([a, b, c, d, e, f, g, h]))
    }

    /// The proof of a datagram.
    #[inline]
    pub fn proof(&self, start: &[u8; START], frame: &[u8]) -> [u8; PROOF] {
        match &self.0 {
            Kind::Mark(mark) => *mark,
            Kind::Code(code) => {
                let code = mac(code, start, frame).finalize().into_bytes();
                std::array::from_fn(|at| code[at])
            }
        }
    }

    /// Whether a datagram is of the end that this is the seal of.
    #[inline]
    pub fn accepts(&self, start: &[u8; START], frame: &[u8], proof: &[u8; PROOF]) -> bool {
        match &self.0 {
            Kind::Mark(mark) => u64::from_le_bytes(*mark) == u64::from_le_bytes(*proof), // one comparison, however much is right
            Kind::Code(code) => mac(code, start, frame).verify_truncated_left(proof).is_ok(),
        }
    }

    /// Whether the proof depends on what is in the datagram.
    pub const fn signs(&self) -> bool {
        matches!(self.0, Kind::Code(_))
    }
}

fn mac(code: &Hmac<Sha256>, start: &[u8; START], frame: &[u8]) -> Hmac<Sha256> {
    let mut mac = code.clone();
    mac.update(start);
    mac.update(frame);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(rank: u32, nonce: u8) -> Side {
        Side { rank, instance: 7, nonce: [nonce; 16] }
    }

    #[test]
    fn each_direction_session_and_kind_has_a_proof_of_its_own_and_debug_shows_none() {
        let key = JobKey::new([7; 32]);
        let seals = [
            Seal::new(&key, side(0, 1), side(1, 2), false),
            Seal::new(&key, side(1, 2), side(0, 1), false),
            Seal::new(&key, side(0, 1), side(1, 3), false),
            Seal::new(&key, side(0, 1), side(1, 2), true),
            Seal::new(&JobKey::new([8; 32]), side(0, 1), side(1, 2), false),
        ];
        for (at, one) in seals.iter().enumerate() {
            let proof = one.proof(&[1; 8], b"x");
            assert_eq!(format!("{one:?}").len(), 10);
            for (other, seal) in seals.iter().enumerate() {
                assert_eq!(seal.accepts(&[1; 8], b"x", &proof), at == other);
            }
        }
    }

    #[test]
    fn a_code_covers_each_bit_and_a_mark_none() {
        let [mark, code] = [false, true].map(|signed| Seal::new(&JobKey::new([7; 32]), side(0, 1), side(1, 2), signed));
        let (start, frame) = ([3; START], [4; 21]);
        let proofs = [&mark, &code].map(|seal| seal.proof(&start, &frame));
        for bit in 0..(START + frame.len()) * 8 {
            let (mut start, mut frame) = (start, frame);
            let byte = if bit / 8 < START { &mut start[bit / 8] } else { &mut frame[bit / 8 - START] };
            *byte ^= 1 << (bit % 8);
            assert!(mark.accepts(&start, &frame, &proofs[0]) && !code.accepts(&start, &frame, &proofs[1]), "bit {bit}");
        }
        assert!(code.signs() && !mark.signs());
    }
}
