//! Who is there: how two ends prove to each other that they belong to one job and are there now. Pure: no socket in here.
//!
//! Either end may begin, or both: there is one kind of hello, and each is good for itself.
//!
//! ```text
//! A                                        B
//!   nonce a, echo -, calls           ->                     whoever it was, knows the key; perhaps long ago
//!                                    <-    nonce b, echo a, calls       b is there now: it has said a
//!   nonce a, echo b, knows           ->                                 a is there now: b is up
//!                                    <-    nonce b, echo a, up          b has the session: a is up
//! ```
//!
//! The code of a hello is HMAC-SHA256 under the job's key over all before it. A hello that echoes the receiver's own latest
//! challenge is news; any other may be an old one sent again, and is believed nothing. It is answered by a challenge, as its
//! speaker may have begun anew; but not a call that answers a challenge which the receiver has not asked, as one with a session
//! does not, nor one whose nonce has already made the session that there is. Others than the peer's own addresses are answered
//! once in a millisecond. A challenge is used for one session. An answer is as long as what it answers.
//!
//! # Another session
//! An end that has a session may ask for another one, by the same four hellos, since its keys have sealed enough
//! ([`Config::renew_after_datagrams`](crate::Config::renew_after_datagrams)); and one that has forgotten its session begins
//! anew. Whoever has a session keeps it meanwhile:
//!
//! ```text
//! A                                        B
//!   nonce a, echo b, knows           ->                     takes what comes under either session, sends under the old one
//!                                    <-    nonce b, echo a, up          sends under the new one, takes either
//!   a datagram under the new one     ->                     B has the proof: the new one only
//!                                    <-    a datagram under the new one A drops the old one
//! ```
//!
//! Until it has the proof, B says "nonce b, echo a, knows" again, first after a millisecond, then each time after twice as
//! long up to a second; A answers "up", which is a proof as well. So does A with its call or "knows" until it hears "up". No
//! matter which hellos are lost, each end takes what the other one sends. The address of a peer that there is a session with
//! changes only to one of its card.
//!
//! | bytes | what, little-endian |
//! |---|---|
//! | 0 | kind, `H` |
//! | 1 | [version](crate::datagram::VERSION) |
//! | 2 | link |
//! | 3 | stage: 0 calls, 1 knows, 2 up; 4 added: its datagrams are to be signed; 8 added: encrypted; 16 or 32 added: the setting behind that, `between-hosts` or `always` |
//! | 4..8 | `"twud"` |
//! | 8..16 | job |
//! | 16..20 | rank of who speaks |
//! | 20..24 | rank of who is meant |
//! | 24..32 | instance of who speaks, as in its card |
//! | 32..40 | instance of who is meant |
//! | 40..44 | number of who is meant at who speaks |
//! | 44..60 | nonce of who speaks: the challenge |
//! | 60..76 | nonce of who is meant, as far as it is known: the answer to its challenge |
//! | 76..124 | where datagrams are encrypted, a message of the [handshake](towline_crypt::Handshake), else zero: of the lower rank the first, for its challenge; of the other one the answer, once it knows the first |
//! | 124..156 | code |

use towline_crypt::MESSAGE;
use towline_net::{Encrypt, JobKey};

use crate::datagram::{BadDatagram, KIND_HELLO, VERSION};

/// Bytes of a hello.
pub const HELLO: usize = 108 + MESSAGE;

const MAGIC: [u8; 4] = *b"twud";
const CODE: usize = 32;
const SIGNS: u8 = 4;
const ENCRYPTED: u8 = 8;
const LABEL: &[u8; 16] = b"towlineudp hello";

/// A challenge.
pub type Nonce = [u8; 16];

/// Where the speaker's challenge is.
pub(crate) const NONCE: std::ops::Range<usize> = 44..60;

/// How far the speaker is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// It does not know whether who is meant is there.
    Calls = 0,
    /// It has seen that.
    Knows = 1,
    /// It can take and send frames, and needs no answer.
    Up = 2,
}

/// A hello, read. Whoever wrote it knows the job's key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Which link.
    pub link: u8,
    /// How far the speaker is.
    pub stage: Stage,
    /// Whether it wants datagrams to be signed.
    pub signs: bool,
    /// Whether it encrypts datagrams.
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
    /// Number of who is meant at who speaks.
    pub index: u32,
    /// The speaker's challenge.
    pub nonce: Nonce,
    /// The challenge that is answered.
    pub echo: Nonce,
    /// Its part of the keys, or zero.
    pub keys: [u8; MESSAGE],
}

/// Why a hello is not believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BadHello {
    /// It is none, or of another version.
    Datagram(BadDatagram),
    /// The code is wrong: the speaker does not know the job's key.
    Key,
}

impl std::fmt::Display for BadHello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Datagram(why) => why.fmt(f),
            Self::Key => f.write_str("it does not know the job's key"),
        }
    }
}

impl std::error::Error for BadHello {}

impl Hello {
    /// As it travels, with its code.
    pub fn encode(&self, key: &JobKey) -> [u8; HELLO] {
        let mut out = [0; HELLO];
        let signs = if self.signs { SIGNS } else { 0 };
        let encrypted = if self.encrypted { ENCRYPTED } else { 0 } | self.encrypt.code() << 4;
        out[..4].copy_from_slice(&[KIND_HELLO, VERSION, self.link, self.stage as u8 | signs | encrypted]);
        out[4..8].copy_from_slice(&MAGIC);
        out[8..16].copy_from_slice(&self.job.to_le_bytes());
        out[16..20].copy_from_slice(&self.from.to_le_bytes());
        out[20..24].copy_from_slice(&self.to.to_le_bytes());
        out[24..32].copy_from_slice(&self.from_instance.to_le_bytes());
        out[32..40].copy_from_slice(&self.to_instance.to_le_bytes());
        out[40..44].copy_from_slice(&self.index.to_le_bytes());
        out[NONCE].copy_from_slice(&self.nonce);
        out[60..76].copy_from_slice(&self.echo);
        out[76..124].copy_from_slice(&self.keys);
        let code = key.prove(LABEL, &[&out[..HELLO - CODE]]);
        out[HELLO - CODE..].copy_from_slice(&code);
        out
    }

    /// Reads what arrived, without its code. Every bit is checked or used.
    ///
    /// # Errors
    /// [`BadDatagram`] says what kind of stranger it is.
    pub fn read(bytes: &[u8; HELLO]) -> Result<Self, BadDatagram> {
        let [kind, version, link, stage, ..] = *bytes;
        if kind != KIND_HELLO || bytes[4..8] != MAGIC {
            return Err(BadDatagram::Foreign);
        }
        if version != VERSION {
            return Err(BadDatagram::Version(version));
        }
        let (signs, encrypted) = (stage & SIGNS != 0, stage & ENCRYPTED != 0);
        let encrypt = Encrypt::from_code(stage >> 4).ok_or(BadDatagram::Malformed)?;
        let stage = match stage & 3 {
            0 => Stage::Calls,
            1 => Stage::Knows,
            2 => Stage::Up,
            _ => return Err(BadDatagram::Malformed),
        };
        let keys: [u8; MESSAGE] = field(bytes, 76);
        if !encrypted && keys != [0; MESSAGE] {
            return Err(BadDatagram::Malformed);
        }
        Ok(Self {
            link,
            stage,
            signs,
            encrypted,
            encrypt,
            job: u64::from_le_bytes(field(bytes, 8)),
            from: u32::from_le_bytes(field(bytes, 16)),
            to: u32::from_le_bytes(field(bytes, 20)),
            from_instance: u64::from_le_bytes(field(bytes, 24)),
            to_instance: u64::from_le_bytes(field(bytes, 32)),
            index: u32::from_le_bytes(field(bytes, 40)),
            nonce: field(bytes, NONCE.start),
            echo: field(bytes, 60),
            keys,
        })
    }

    /// Reads what arrived, and checks its code.
    ///
    /// # Errors
    /// [`BadHello`] says what kind of stranger it is.
    pub fn decode(bytes: &[u8; HELLO], key: &JobKey) -> Result<Self, BadHello> {
        let hello = Self::read(bytes).map_err(BadHello::Datagram)?;
        let (said, code) = bytes.split_at(HELLO - CODE);
        let code = code.try_into().map_err(|_| BadHello::Key)?;
        if key.proves(LABEL, &[said], code) { Ok(hello) } else { Err(BadHello::Key) }
    }
}

/// `N` bytes from `at`; the offsets are constants within a hello.
fn field<const N: usize>(bytes: &[u8; HELLO], at: usize) -> [u8; N] {
    std::array::from_fn(|byte| bytes[at + byte])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            link: 3,
            stage: Stage::Knows,
            signs: true,
            encrypted: true,
            encrypt: Encrypt::Always,
            job: 0x1122_3344_5566_7788,
            from: 0x0102_0304,
            to: 5,
            from_instance: 6,
            to_instance: 7,
            index: 8,
            nonce: [9; 16],
            echo: [10; 16],
            keys: [11; MESSAGE],
        }
    }

    #[test]
    fn golden_bytes() {
        let key = JobKey::new([0x5A; 32]);
        let bytes = hello().encode(&key);
        let mut golden = b"H\x02\x03\x2dtwud\x88\x77\x66\x55\x44\x33\x22\x11\x04\x03\x02\x01\x05\0\0\0".to_vec();
        golden.extend_from_slice(b"\x06\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x08\0\0\0");
        golden.extend_from_slice(&[[9; 16], [10; 16]].concat());
        golden.extend_from_slice(&[11; MESSAGE]);
        assert_eq!(bytes[..HELLO - CODE], golden);
        assert_eq!(Hello::decode(&bytes, &key), Ok(hello()));
    }

    #[test]
    fn any_changed_bit_is_noticed() {
        let key = JobKey::new([0x5A; 32]);
        let good = hello().encode(&key);
        for bit in 0..HELLO * 8 {
            let mut bytes = good;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Hello::decode(&bytes, &key).is_err(), "bit {bit}");
        }
        assert_eq!(Hello::decode(&good, &JobKey::new([0x5B; 32])), Err(BadHello::Key));
    }
}
