//! The hello: how two ends prove to each other that they belong to one job and are there now. No code here uses a socket.
//!
//! Either end may begin, or both. There is one kind of hello, and each hello stands for itself.
//!
//! ```text
//! A                                        B
//!   nonce a, echo -, challenge       ->                     the sender knows the key; the hello may be old
//!                                    <-    nonce b, echo a, challenge   B is there now, as it echoes a
//!   nonce a, echo b, verified        ->                                 A is there now: B is established
//!                                    <-    nonce b, echo a, established  B has the session: A is established
//! ```
//!
//! The code of a hello is HMAC-SHA256 under the job's key over all bytes before it. A hello that echoes the receiver's latest
//! challenge is fresh. Any other hello may be a replay, and its content is not used. It is answered by a challenge, as its sender
//! may have forgotten its session. Two kinds are not answered: a challenge that echoes a challenge which the receiver has not
//! sent (an end with a session sends none), and a hello whose nonce has made the present session already. Hellos from addresses
//! other than the peer's own are answered once in a millisecond. A challenge is used for one session. An answer is as long as the
//! hello that it answers.
//!
//! # A new session
//! An end with a session asks for another one, by the same four hellos, when its keys have sealed enough datagrams
//! ([`Config::renew_after_datagrams`](crate::Config::renew_after_datagrams)). An end that has forgotten its session begins in the
//! same way. An end with a session keeps it meanwhile:
//!
//! ```text
//! A                                        B
//!   nonce a, echo b, verified        ->                     receives under either session, sends under the old one
//!                                    <-    nonce b, echo a, established  sends under the new one, receives under either
//!   a datagram under the new one     ->                     B has the proof, and drops the old one
//!                                    <-    a datagram under the new one A drops the old one
//! ```
//!
//! Until B has the proof, it repeats "nonce b, echo a, verified": first after a millisecond, then after twice the time, up to a
//! second. A answers "established", which is a proof too. A repeats its challenge or "verified" in the same way until it receives
//! "established". Whichever hellos are lost, each end accepts the datagrams of the other. The address of a peer with a session
//! changes only to an address of its card.
//!
//! | bytes | content, little-endian |
//! |---|---|
//! | 0 | kind, `H` |
//! | 1 | [`VERSION`] |
//! | 2 | link |
//! | 3 | [`Stage`] in bits 0 and 1; 4 added: datagrams are to have a MAC; 8 added: encrypted; 16 or 32 added: the setting behind that, `between-hosts` or `always` |
//! | 4..8 | `"twud"` |
//! | 8..40 | [`Identity`]: job, rank of sender and receiver, instance of sender and receiver |
//! | 40..44 | index of the receiver at the sender |
//! | 44..60 | nonce of the sender: the challenge |
//! | 60..76 | nonce of the receiver, if it is known: the echo of its challenge |
//! | 76..124 | where datagrams are encrypted, a message of the [handshake](towline_crypt::Handshake), else zero: from the lower rank the first message, for its challenge; from the other rank the answer, once it has the first |
//! | 124..156 | code |

use std::fmt;

use towline_crypt::MESSAGE;
use towline_net::fields::{bytes_at, u32_at};
use towline_net::{Encrypt, Identity, JobKey};

use crate::wire::format::{BadDatagram, KIND_HELLO, VERSION};

pub use crate::wire::format::HELLO;

const MAGIC: [u8; 4] = *b"twud";
const CODE: usize = 32;
const SIGNS: u8 = 4;
const ENCRYPTED: u8 = 8;
const LABEL: &[u8; 16] = b"towlineudp hello";

/// A challenge.
pub type Nonce = [u8; 16];

/// The place of the sender's challenge.
pub(crate) const NONCE: std::ops::Range<usize> = 44..60;

/// How far the sender has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// It does not know whether the receiver is there.
    Challenge = 0,
    /// It has verified that the receiver is there.
    Verified = 1,
    /// It can receive and send frames, and needs no answer.
    Established = 2,
}

/// A hello, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Number of the link.
    pub link: u8,
    /// How far the sender has come.
    pub stage: Stage,
    /// Whether the sender wants datagrams to have a MAC.
    pub signs: bool,
    /// Whether the sender encrypts datagrams.
    pub encrypted: bool,
    /// The sender's setting, from which `encrypted` follows.
    pub encrypt: Encrypt,
    /// Job, ranks and instances of sender and receiver.
    pub identity: Identity,
    /// Index of the receiver at the sender.
    pub index: u32,
    /// The sender's challenge.
    pub nonce: Nonce,
    /// The challenge that is answered.
    pub echo: Nonce,
    /// The sender's message of the key exchange, or zero.
    pub keys: [u8; MESSAGE],
}

/// Why a hello is not accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadHello {
    /// The bytes are not a hello of this version.
    Datagram(BadDatagram),
    /// The code is wrong: the sender does not know the job's key.
    Key,
}

impl fmt::Display for BadHello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Datagram(why) => why.fmt(f),
            Self::Key => f.write_str("the sender does not know the job's key"),
        }
    }
}

impl std::error::Error for BadHello {}

towline_core::debug_as_display!(BadHello);

impl Hello {
    /// The hello as it travels, with its code.
    pub fn encode(&self, key: &JobKey) -> [u8; HELLO] {
        let mut out = [0; HELLO];
        let signs = if self.signs { SIGNS } else { 0 };
        let encrypted = if self.encrypted { ENCRYPTED } else { 0 } | self.encrypt.code() << 4;
        out[..4].copy_from_slice(&[KIND_HELLO, VERSION, self.link, self.stage as u8 | signs | encrypted]);
        out[4..8].copy_from_slice(&MAGIC);
        out[8..40].copy_from_slice(&self.identity.encode());
        out[40..44].copy_from_slice(&self.index.to_le_bytes());
        out[NONCE].copy_from_slice(&self.nonce);
        out[60..76].copy_from_slice(&self.echo);
        out[76..124].copy_from_slice(&self.keys);
        let code = key.prove(LABEL, &[&out[..HELLO - CODE]]);
        out[HELLO - CODE..].copy_from_slice(&code);
        out
    }

    /// Reads a hello without checking its code. Every other bit is checked or used.
    ///
    /// # Errors
    /// [`BadDatagram`] says why the bytes are not a hello.
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
            0 => Stage::Challenge,
            1 => Stage::Verified,
            2 => Stage::Established,
            _ => return Err(BadDatagram::Malformed),
        };
        let keys: [u8; MESSAGE] = bytes_at(bytes, 76);
        if !encrypted && keys != [0; MESSAGE] {
            return Err(BadDatagram::Malformed);
        }
        Ok(Self {
            link,
            stage,
            signs,
            encrypted,
            encrypt,
            identity: Identity::decode(&bytes_at(bytes, 8)),
            index: u32_at(bytes, 40),
            nonce: bytes_at(bytes, NONCE.start),
            echo: bytes_at(bytes, 60),
            keys,
        })
    }

    /// Reads a hello and checks its code.
    ///
    /// # Errors
    /// [`BadHello`] says why the hello is not accepted.
    pub fn decode(bytes: &[u8; HELLO], key: &JobKey) -> Result<Self, BadHello> {
        let hello = Self::read(bytes).map_err(BadHello::Datagram)?;
        let (covered, code) = bytes.split_at(HELLO - CODE);
        let code = code.try_into().map_err(|_| BadHello::Key)?;
        if key.proves(LABEL, &[covered], code) { Ok(hello) } else { Err(BadHello::Key) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            link: 3,
            stage: Stage::Verified,
            signs: true,
            encrypted: true,
            encrypt: Encrypt::Always,
            identity: Identity {
                job: 0x1122_3344_5566_7788,
                from: 0x0102_0304,
                to: 5,
                from_instance: 6,
                to_instance: 7,
            },
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
    fn any_changed_bit_is_detected() {
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
