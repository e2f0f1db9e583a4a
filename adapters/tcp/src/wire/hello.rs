//! The hello: how two ends prove to each other that they belong to one job. No code here uses a socket.
//!
//! ```text
//! initiator                                   acceptor
//!   Hello{role 1, identity, nonce, keys} ->                            136 bytes
//!                                        <-   Hello{role 2, identity, nonce, keys} + proof "acceptor"   136 + 32
//!   proof "initiator"                    ->                            32
//!                                        <-   verdict + proof "verdict"                       8 + 32
//! ```
//!
//! A proof is HMAC-SHA256 under the job's key over a label and both hellos as they travelled. The hellos contain the job, both
//! ranks, both instances and both nonces, and the label contains the role. So a proof holds for one connection in one
//! direction, and can be neither reflected nor replayed. The key itself is never sent. A caller without the key learns only that
//! a Towline process listens here.
//!
//! | bytes of a hello | content, little-endian |
//! |---|---|
//! | 0..8 | [`MAGIC`] |
//! | 8..10 | version, [`VERSION`] |
//! | 10 | role: 1 initiator, 2 acceptor |
//! | 11 | link |
//! | 12..16 | features: [`ENCRYPTED`] if the sender encrypts this connection; the setting behind that in bits 8 and 9; else zero |
//! | 16..48 | [`Identity`]: job, rank of sender and receiver, instance of sender and receiver |
//! | 48..56 | host of the sender, as in its card |
//! | 56..88 | nonce |
//! | 88..136 | a message of the [handshake](towline_crypt::Handshake) if the connection is to be encrypted; else zero |
//!
//! Either both ends encrypt or neither does. Ends that differ refuse each other and report why. Both ends know whether they are
//! on one host by the host numbers: the acceptor from the hello, the initiator from the card. Addresses cannot tell this, as a
//! forwarder may be between the two.

use std::fmt;

use towline_crypt::MESSAGE;
use towline_net::fields::{bytes_at, u32_at, u64_at};
use towline_net::{Encrypt, Identity, JobKey};

/// The first bytes of a hello.
pub const MAGIC: [u8; 8] = *b"towl-tcp";
/// Version of hello and framing.
pub const VERSION: u16 = 2;
/// Bytes of a hello.
pub const HELLO: usize = 88 + MESSAGE;
/// The feature bit of a sender that encrypts the connection.
pub const ENCRYPTED: u32 = 1;
/// Bytes of a proof.
pub const PROOF: usize = 32;
/// Bytes of a verdict with its proof.
pub const VERDICT: usize = 8 + PROOF;

/// The role of an end in the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The end that called `connect`.
    Initiator = 1,
    /// The end that listens.
    Acceptor = 2,
}

/// A hello, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Role of the sender.
    pub role: Role,
    /// Number of the link.
    pub link: u8,
    /// Whether the sender encrypts this connection.
    pub encrypted: bool,
    /// The sender's setting, from which `encrypted` follows.
    pub encrypt: Encrypt,
    /// Job, ranks and instances of sender and receiver.
    pub identity: Identity,
    /// Host of the sender.
    pub host: u64,
    /// The challenge.
    pub nonce: [u8; 32],
    /// The sender's message of the key exchange; zero where the connection is not encrypted.
    pub keys: [u8; MESSAGE],
}

/// Why bytes are not a hello.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadHello {
    /// They do not start with [`MAGIC`]: the remote end is not a Towline process.
    Foreign,
    /// They have another version, which is given.
    Version(u16),
    /// A field has a value that it cannot have.
    Malformed,
}

impl fmt::Display for BadHello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("the remote end is not a Towline process"),
            Self::Version(version) => write!(
                f,
                "the remote end has version {version} of the tcp protocol, this rank has version {VERSION}: use one version of \
                 Towline for all ranks"
            ),
            Self::Malformed => f.write_str("the hello of the remote end is malformed"),
        }
    }
}

impl std::error::Error for BadHello {}

towline_core::debug_as_display!(BadHello);

/// The decision of the acceptor about a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// This connection is used.
    Accepted = 1,
    /// Another connection between the two ranks is used.
    Duplicate = 2,
    /// The acceptor wants no connection: it has lost or not added the initiator, or knows another instance of that rank.
    Refused = 3,
}

impl Hello {
    /// The hello as it travels.
    pub fn encode(&self) -> [u8; HELLO] {
        let mut out = [0; HELLO];
        out[..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&VERSION.to_le_bytes());
        out[10] = self.role as u8;
        out[11] = self.link;
        let features = (u32::from(self.encrypted) * ENCRYPTED) | (u32::from(self.encrypt.code()) << 8);
        out[12..16].copy_from_slice(&features.to_le_bytes());
        out[16..48].copy_from_slice(&self.identity.encode());
        out[48..56].copy_from_slice(&self.host.to_le_bytes());
        out[56..88].copy_from_slice(&self.nonce);
        out[88..].copy_from_slice(&self.keys);
        out
    }

    /// Reads a hello. Every bit is checked or used.
    ///
    /// # Errors
    /// [`BadHello`] says why the bytes are not a hello.
    pub fn decode(bytes: &[u8; HELLO]) -> Result<Self, BadHello> {
        if bytes[..8] != MAGIC {
            return Err(BadHello::Foreign);
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return Err(BadHello::Version(version));
        }
        let role = match bytes[10] {
            1 => Role::Initiator,
            2 => Role::Acceptor,
            _ => return Err(BadHello::Malformed),
        };
        let features = u32_at(bytes, 12);
        let encrypted = features & ENCRYPTED != 0;
        let keys: [u8; MESSAGE] = bytes_at(bytes, 88);
        let encrypt = Encrypt::from_code((features >> 8) as u8).filter(|_| features & !(ENCRYPTED | 0x300) == 0);
        let encrypt = encrypt.filter(|_| encrypted || keys == [0; MESSAGE]).ok_or(BadHello::Malformed)?;
        Ok(Self {
            role,
            link: bytes[11],
            encrypted,
            encrypt,
            identity: Identity::decode(&bytes_at(bytes, 16)),
            host: u64_at(bytes, 48),
            nonce: bytes_at(bytes, 56),
            keys,
        })
    }
}

/// Both hellos of a connection, as they travelled.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// The initiator's hello.
    pub initiator: [u8; HELLO],
    /// The acceptor's hello.
    pub acceptor: [u8; HELLO],
}

impl Transcript {
    /// The proof that the end with this role sends.
    pub fn proof(&self, key: &JobKey, role: Role) -> [u8; PROOF] {
        key.prove(label(role), &[&self.initiator, &self.acceptor])
    }

    /// Whether `proof` is the proof of the end with this role. Takes the same time for any wrong proof.
    pub fn proves(&self, key: &JobKey, role: Role, proof: &[u8; PROOF]) -> bool {
        key.proves(label(role), &[&self.initiator, &self.acceptor], proof)
    }

    /// A verdict with its proof.
    pub fn verdict(&self, key: &JobKey, verdict: Verdict) -> [u8; VERDICT] {
        let mut out = [0; VERDICT];
        out[0] = verdict as u8;
        let proof = key.prove(LABEL_VERDICT, &[&self.initiator, &self.acceptor, &out[..8]]);
        out[8..].copy_from_slice(&proof);
        out
    }

    /// Reads a verdict; `None` for bytes that do not come from the acceptor.
    pub fn read_verdict(&self, key: &JobKey, bytes: &[u8; VERDICT]) -> Option<Verdict> {
        let (verdict, proof) = bytes.split_last_chunk::<PROOF>()?;
        key.proves(LABEL_VERDICT, &[&self.initiator, &self.acceptor, verdict], proof).then_some(())?;
        match bytes[0] {
            1 => Some(Verdict::Accepted),
            2 => Some(Verdict::Duplicate),
            3 => Some(Verdict::Refused),
            _ => None,
        }
    }
}

const LABEL_VERDICT: &[u8; 16] = b"towline  verdict";

const fn label(role: Role) -> &'static [u8; 16] {
    match role {
        Role::Initiator => b"towlineinitiator",
        Role::Acceptor => b"towline acceptor",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(role: Role) -> Hello {
        Hello {
            role,
            link: 3,
            encrypted: true,
            encrypt: Encrypt::Always,
            identity: Identity {
                job: 0x1122_3344_5566_7788,
                from: 0x0102_0304,
                to: 5,
                from_instance: 6,
                to_instance: 7,
            },
            host: 8,
            nonce: std::array::from_fn(|at| at as u8),
            keys: std::array::from_fn(|at| at as u8 + 32),
        }
    }

    fn transcript() -> Transcript {
        Transcript { initiator: hello(Role::Initiator).encode(), acceptor: hello(Role::Acceptor).encode() }
    }

    #[test]
    fn golden_bytes() {
        let bytes = hello(Role::Initiator).encode();
        let mut golden = Vec::new();
        golden.extend_from_slice(b"towl-tcp\x02\x00\x01\x03\x01\x02\x00\x00");
        golden.extend_from_slice(b"\x88\x77\x66\x55\x44\x33\x22\x11\x04\x03\x02\x01\x05\x00\x00\x00");
        golden.extend_from_slice(b"\x06\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0");
        golden.extend(0..80u8);
        assert_eq!(bytes[..], golden[..]);
        assert_eq!(Hello::decode(&bytes), Ok(hello(Role::Initiator)));
    }

    #[test]
    fn malformed_hellos_are_refused_with_the_reason() {
        let mut bytes = hello(Role::Acceptor).encode();
        bytes[0] = b'G';
        assert_eq!(Hello::decode(&bytes), Err(BadHello::Foreign));
        let mut bytes = hello(Role::Acceptor).encode();
        bytes[8] = 1;
        assert_eq!(Hello::decode(&bytes), Err(BadHello::Version(1)));
        // Among others: keys without encryption, unknown features, and settings that do not exist.
        for (at, value) in [(10, 0), (10, 3), (12, 0), (12, 3), (13, 3), (14, 1)] {
            let mut bytes = hello(Role::Acceptor).encode();
            bytes[at] = value;
            assert_eq!(Hello::decode(&bytes), Err(BadHello::Malformed), "byte {at}");
        }
    }

    #[test]
    fn a_proof_holds_for_one_role_one_key_and_one_transcript() {
        let key = JobKey::new([1; 32]);
        let proof = transcript().proof(&key, Role::Initiator);
        assert!(transcript().proves(&key, Role::Initiator, &proof));
        assert!(!transcript().proves(&key, Role::Acceptor, &proof), "reflected");
        assert!(!transcript().proves(&JobKey::new([2; 32]), Role::Initiator, &proof), "another key");
        for at in 0..2 * HELLO {
            let mut changed = transcript();
            let side = if at < HELLO { &mut changed.initiator } else { &mut changed.acceptor };
            side[at % HELLO] ^= 1;
            assert!(!changed.proves(&key, Role::Initiator, &proof), "byte {at}");
        }
        let swapped = Transcript { initiator: transcript().acceptor, acceptor: transcript().initiator };
        assert!(!swapped.proves(&key, Role::Initiator, &proof), "exchanged");
    }

    #[test]
    fn only_the_acceptor_gives_a_verdict() {
        let key = JobKey::new([1; 32]);
        for verdict in [Verdict::Accepted, Verdict::Duplicate, Verdict::Refused] {
            let mut bytes = transcript().verdict(&key, verdict);
            assert_eq!(transcript().read_verdict(&key, &bytes), Some(verdict));
            bytes[0] ^= 3;
            assert_eq!(transcript().read_verdict(&key, &bytes), None);
        }
    }

    /// HMAC-SHA256 of the golden hellos, so that another implementation can check its own.
    #[test]
    fn golden_proof() {
        let proof = transcript().proof(&JobKey::new([0x42; 32]), Role::Initiator);
        let hex: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "227a422958c5fcb9fc9755337a92aa22db343cd4349b4a3e85277ace5f8d3946");
    }
}
