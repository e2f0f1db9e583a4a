//! How the datagrams of a session are authenticated. No code here uses a socket.
//!
//! Each direction has a secret of its own: HMAC-SHA256 under the job's key over ranks, instances and nonces of sender and
//! receiver, in this order, little-endian. The first eight bytes of the secret are the token of the direction. Or the secret is
//! the key of a MAC over each datagram: the first eight bytes of HMAC-SHA256 over all of the datagram but the MAC. The hellos say
//! which of the two is used: the MAC if either end wants it.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use towline_net::JobKey;

use crate::wire::datagram::{PROOF, START};
use crate::wire::hello::Nonce;

const LABEL: &[u8; 16] = b"towlineudp marks";

/// One end of a session, as far as the secrets depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// Its rank.
    pub rank: u32,
    /// Its instance.
    pub instance: u64,
    /// Its challenge.
    pub nonce: Nonce,
}

/// Makes and checks the proofs of the datagrams of one direction.
#[derive(Clone)]
pub struct Authenticator(Kind);

#[derive(Clone)]
enum Kind {
    Token([u8; PROOF]),
    Mac(Box<Hmac<Sha256>>),
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Token(_) => "Authenticator(token)",
            Kind::Mac(_) => "Authenticator(mac)",
        })
    }
}

impl Authenticator {
    /// The authenticator of datagrams from one end to the other. `signed`: each datagram has a MAC.
    ///
    /// ```
    /// use towline_udp::JobKey;
    /// use towline_udp::session::{Authenticator, End};
    ///
    /// let end = |rank| End { rank, instance: 7, nonce: [1; 16] };
    /// let authenticator = Authenticator::new(&JobKey::new([7; 32]), end(0), end(1), true);
    /// let proof = authenticator.proof(&[0; 8], b"frame");
    /// assert!(authenticator.accepts(&[0; 8], b"frame", &proof) && !authenticator.accepts(&[0; 8], b"phrase", &proof));
    /// ```
    pub fn new(key: &JobKey, from: End, to: End, signed: bool) -> Self {
        let encode = |end: End| {
            let mut bytes = [0; 28];
            bytes[..4].copy_from_slice(&end.rank.to_le_bytes());
            bytes[4..12].copy_from_slice(&end.instance.to_le_bytes());
            bytes[12..].copy_from_slice(&end.nonce);
            bytes
        };
        let secret = key.prove(LABEL, &[&encode(from), &encode(to), &[u8::from(signed)]]);
        if signed {
            let mut block = [0; 64];
            block[..32].copy_from_slice(&secret);
            return Self(Kind::Mac(Box::new(Hmac::new(&block.into()))));
        }
        let [a, b, c, d, e, f, g, h, ..] = secret;
        Self(Kind::Token([a, b, c, d, e, f, g, h]))
    }

    /// The proof of a datagram that consists of this start, the proof and this frame.
    #[inline]
    pub fn proof(&self, start: &[u8; START], frame: &[u8]) -> [u8; PROOF] {
        match &self.0 {
            Kind::Token(token) => *token,
            Kind::Mac(state) => {
                let code = mac(state, start, frame).finalize().into_bytes();
                std::array::from_fn(|at| code[at])
            }
        }
    }

    /// Whether a datagram comes from the sender of this direction. Takes the same time for any wrong proof.
    #[inline]
    pub fn accepts(&self, start: &[u8; START], frame: &[u8], proof: &[u8; PROOF]) -> bool {
        match &self.0 {
            // One comparison of two words, so that its time does not depend on the bytes.
            Kind::Token(token) => u64::from_le_bytes(*token) == u64::from_le_bytes(*proof),
            Kind::Mac(state) => mac(state, start, frame).verify_truncated_left(proof).is_ok(),
        }
    }

    /// Whether the proof depends on the content of the datagram.
    pub const fn signs(&self) -> bool {
        matches!(self.0, Kind::Mac(_))
    }
}

fn mac(state: &Hmac<Sha256>, start: &[u8; START], frame: &[u8]) -> Hmac<Sha256> {
    let mut mac = state.clone();
    mac.update(start);
    mac.update(frame);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(rank: u32, nonce: u8) -> End {
        End { rank, instance: 7, nonce: [nonce; 16] }
    }

    #[test]
    fn each_direction_session_and_kind_has_a_proof_of_its_own_and_debug_shows_none() {
        let key = JobKey::new([7; 32]);
        let authenticators = [
            Authenticator::new(&key, end(0, 1), end(1, 2), false),
            Authenticator::new(&key, end(1, 2), end(0, 1), false),
            Authenticator::new(&key, end(0, 1), end(1, 3), false),
            Authenticator::new(&key, end(0, 1), end(1, 2), true),
            Authenticator::new(&JobKey::new([8; 32]), end(0, 1), end(1, 2), false),
        ];
        for (at, one) in authenticators.iter().enumerate() {
            let proof = one.proof(&[1; 8], b"x");
            assert!(["Authenticator(token)", "Authenticator(mac)"].contains(&format!("{one:?}").as_str()));
            for (other, authenticator) in authenticators.iter().enumerate() {
                assert_eq!(authenticator.accepts(&[1; 8], b"x", &proof), at == other);
            }
        }
    }

    #[test]
    fn a_mac_covers_each_bit_and_a_token_none() {
        let [token, mac] =
            [false, true].map(|signed| Authenticator::new(&JobKey::new([7; 32]), end(0, 1), end(1, 2), signed));
        let (start, frame) = ([3; START], [4; 21]);
        let proofs = [&token, &mac].map(|it| it.proof(&start, &frame));
        for bit in 0..(START + frame.len()) * 8 {
            let (mut start, mut frame) = (start, frame);
            let byte = if bit / 8 < START { &mut start[bit / 8] } else { &mut frame[bit / 8 - START] };
            *byte ^= 1 << (bit % 8);
            assert!(token.accepts(&start, &frame, &proofs[0]) && !mac.accepts(&start, &frame, &proofs[1]), "bit {bit}");
        }
        assert!(mac.signs() && !token.signs());
    }
}
