//! Who is there: the bytes by which two ends prove to each other that they belong to one job. Pure: no socket in here.
//!
//! ```text
//! initiator                                   acceptor
//!   Hello{role 1, ranks, nonce, keys}  ->                     136 bytes
//!                                      <-     Hello{role 2, ranks, nonce, keys} + proof "acceptor"   136 + 32
//!   proof "initiator"                  ->                     32
//!                                      <-     verdict + proof "verdict"                         8 + 32
//! ```
//!
//! A proof is HMAC-SHA256 under the job's key over a label and both hellos as they travelled. The hellos hold the job,
//! both ranks, both instances and both nonces, and the label the role, so a proof is good for one connection in one
//! direction: it can be neither reflected nor replayed. The key itself is never sent, and a caller without it learns
//! nothing but that a towline listens here.
//!
//! | bytes of a hello | what, little-endian |
//! |---|---|
//! | 0..8 | [`MAGIC`] |
//! | 8..10 | version, [`VERSION`] |
//! | 10 | role: 1 initiator, 2 acceptor |
//! | 11 | link |
//! | 12..16 | features: [`ENCRYPTED`] where this connection is to be; the setting behind that in bits 8 and 9; else zero |
//! | 16..24 | job |
//! | 24..28 | rank of who speaks |
//! | 28..32 | rank of who is meant |
//! | 32..40 | instance of who speaks, as in its card |
//! | 40..48 | instance of who is meant |
//! | 48..56 | host of who speaks, as in its card |
//! | 56..88 | nonce |
//! | 88..136 | a message of the [handshake](towline_crypt::Handshake), where the connection is to be encrypted; else zero |
//!
//! Both ends encrypt, or neither: they refuse each other where they differ, and tell why. Whether they are on one host both know
//! by what they say of themselves, the acceptor from the hello and the initiator from the card; addresses would not do, as a
//! forwarder may stand in between.

use towline_crypt::MESSAGE;
use towline_net::{Encrypt, JobKey};

/// First bytes of a hello.
pub const MAGIC: [u8; 8] = *b"towl-tcp";
/// Version of hello and framing.
pub const VERSION: u16 = 2;
/// Bytes of a hello.
pub const HELLO: usize = 88 + MESSAGE;
/// The feature bit of who is to encrypt what follows.
pub const ENCRYPTED: u32 = 1;
/// Bytes of a proof.
pub const PROOF: usize = 32;
/// Bytes of a verdict with its proof.
pub const VERDICT: usize = 8 + PROOF;

/// Who speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// The side that called `connect`.
    Initiator = 1,
    /// The side that listens.
    Acceptor = 2,
}

/// A hello, read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Who speaks.
    pub role: Role,
    /// Which link.
    pub link: u8,
    /// Whether the speaker encrypts this connection.
    pub encrypted: bool,
    /// Its setting, from which that follows.
    pub encrypt: Encrypt,
    /// Which job.
    pub job: u64,
    /// Rank of who speaks.
    pub from: u32,
    /// Rank of who is meant.
    pub to: u32,
    /// Instance of who speaks.
    pub from_instance: u64,
    /// Instance of who is meant: tells a new owner of a port from the old one.
    pub to_instance: u64,
    /// Host of who speaks.
    pub host: u64,
    /// The challenge.
    pub nonce: [u8; 32],
    /// Its part of the keys; zero where nothing is encrypted.
    pub keys: [u8; MESSAGE],
}

/// Why bytes are not a hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BadHello {
    /// It does not start with [`MAGIC`]: not a towline.
    Foreign,
    /// Another version, which is given.
    Version(u16),
    /// A field has a value that it cannot have.
    Malformed,
}

impl std::fmt::Display for BadHello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Foreign => f.write_str("it is no towline that speaks"),
            Self::Version(version) => write!(f, "it speaks version {version}, here is version {VERSION}"),
            Self::Malformed => f.write_str("its hello is malformed"),
        }
    }
}

impl std::error::Error for BadHello {}

/// What the acceptor decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// This connection is the one.
    Accepted = 1,
    /// Another connection between the two is the one.
    Duplicate = 2,
    /// No connection between the two is wanted.
    Refused = 3,
}

impl Hello {
    /// As it travels.
    pub fn encode(&self) -> [u8; HELLO] {
        let mut out = [0; HELLO];
        out[..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&VERSION.to_le_bytes());
        out[10] = self.role as u8;
        out[11] = self.link;
        let features = (u32::from(self.encrypted) * ENCRYPTED) | (u32::from(self.encrypt.code()) << 8);
        out[12..16].copy_from_slice(&features.to_le_bytes());
        out[16..24].copy_from_slice(&self.job.to_le_bytes());
        out[24..28].copy_from_slice(&self.from.to_le_bytes());
        out[28..32].copy_from_slice(&self.to.to_le_bytes());
        out[32..40].copy_from_slice(&self.from_instance.to_le_bytes());
        out[40..48].copy_from_slice(&self.to_instance.to_le_bytes());
        out[48..56].copy_from_slice(&self.host.to_le_bytes());
        out[56..88].copy_from_slice(&self.nonce);
        out[88..].copy_from_slice(&self.keys);
        out
    }

    /// Reads what arrived. Every bit is checked or used.
    ///
    /// # Errors
    /// [`BadHello`] says what kind of stranger it is.
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
        let features = u32::from_le_bytes(field(bytes, 12));
        let encrypted = features & ENCRYPTED != 0;
        let keys: [u8; MESSAGE] = field(bytes, 88);
        let encrypt = Encrypt::from_code((features >> 8) as u8).filter(|_| features & !(ENCRYPTED | 0x300) == 0);
        let encrypt = encrypt.filter(|_| encrypted || keys == [0; MESSAGE]).ok_or(BadHello::Malformed)?;
        Ok(Self {
            role,
            link: bytes[11],
            encrypted,
            encrypt,
            job: u64::from_le_bytes(field(bytes, 16)),
            from: u32::from_le_bytes(field(bytes, 24)),
            to: u32::from_le_bytes(field(bytes, 28)),
            from_instance: u64::from_le_bytes(field(bytes, 32)),
            to_instance: u64::from_le_bytes(field(bytes, 40)),
            host: u64::from_le_bytes(field(bytes, 48)),
            nonce: field(bytes, 56),
            keys,
        })
    }
}

/// Both hellos of a connection, as they travelled.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// What the initiator said.
    pub initiator: [u8; HELLO],
    /// What the acceptor said.
    pub acceptor: [u8; HELLO],
}

impl Transcript {
    /// The proof of `role`.
    pub fn proof(&self, key: &JobKey, role: Role) -> [u8; PROOF] {
        key.prove(label(role), &[&self.initiator, &self.acceptor])
    }

    /// Whether `proof` is the proof of `role`; takes the same time for any wrong one.
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

    /// Reads a verdict; `None` for one that the acceptor did not give.
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

/// `N` bytes from `at`; the offsets are constants within a hello.
fn field<const N: usize>(bytes: &[u8; HELLO], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
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
            job: 0x1122_3344_5566_7788,
            from: 0x0102_0304,
            to: 5,
            from_instance: 6,
            to_instance: 7,
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
    fn strangers_are_told_apart() {
        let mut bytes = hello(Role::Acceptor).encode();
        bytes[0] = b'G';
        assert_eq!(Hello::decode(&bytes), Err(BadHello::Foreign));
        let mut bytes = hello(Role::Acceptor).encode();
        bytes[8] = 1;
        assert_eq!(Hello::decode(&bytes), Err(BadHello::Version(1)));
        // Keys of one that does not encrypt, and features and settings that there are not, among others.
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
        assert!(!swapped.proves(&key, Role::Initiator, &proof), "turned round");
    }

    #[test]
    fn a_verdict_is_the_acceptors() {
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
