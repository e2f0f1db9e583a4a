//! The hello: a datagram by which the two ends of a connection tell each other of the queue pairs that are to be connected.
//! Hellos are datagrams of verbs, and may get lost. No code here calls a device.
//!
//! Either end may begin, or both at the same time; the handshake is the same. Each end makes a queue pair of its own, and
//! gives its connection a number that is higher than any before.
//!
//! ```text
//! A                                        B
//!   queue pair a, echo -, request    ->                                        makes b, connects it to a
//!                                    <-    queue pair b, echo a, request       connects a to b; a may send
//!   queue pair a, echo b             ->                                        b may send
//! ```
//!
//! An end that does not know whether the other end has connected sends requests, again and again; the other end replies. A hello
//! with a lower number than an earlier one is old. A hello with a higher number than the connection's says that the other end has
//! started again. A goodbye names both numbers, and so does the hello that rejects an unknown connection.
//!
//! The authentication code of a hello is HMAC-SHA256 under the job's key over all bytes before the code: an end that does not
//! know the key gets no connection. The data on a connection is not signed and not encrypted; the network must be trusted.
//!
//! | bytes | content, little-endian |
//! |---|---|
//! | 0..4 | `"twvh"` |
//! | 4 | [version](crate::card::VERSION) |
//! | 5 | [kind](HelloKind): 0 reply; 1 request; 2 goodbye; 3 unknown connection |
//! | 6..8 | zero |
//! | 8..40 | [identity](Identity): job, ranks and instances |
//! | 40..48 | number of the sender's connection |
//! | 48..56 | number of the receiver's connection, if the sender knows it; else zero |
//! | 56..60 | number of the sender's queue pair |
//! | 60..64 | sequence number of the first packet that this queue pair will send |
//! | 64..96 | authentication code |

use towline_net::fields::{bytes_at, u32_at, u64_at};
use towline_net::{Identity, JobKey};

use crate::wire::card::VERSION;

/// Bytes of a hello.
pub const BYTES: usize = 96;

const MAGIC: &[u8; 4] = b"twvh";
/// Bytes before the authentication code.
const SIGNED: usize = 64;
const LABEL: &[u8; 16] = b"towlineverbshell";

/// The purpose of a hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum HelloKind {
    /// The sender has connected, and knows that the other end has.
    Reply = 0,
    /// The sender wants a reply.
    Request = 1,
    /// The sender has closed normally.
    Goodbye = 2,
    /// The sender never had the connection that the hello names, or has ended it.
    Unknown = 3,
}

/// The content of a hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Its purpose.
    pub kind: HelloKind,
    /// Job, ranks and instances of the two ends.
    pub identity: Identity,
    /// Number of the sender's connection.
    pub number: u64,
    /// Number of the receiver's connection; zero if the sender does not know it.
    pub echo: u64,
    /// Number of the sender's queue pair, of 24 bits.
    pub queue_pair: u32,
    /// Sequence number of the first packet that this queue pair will send, of 24 bits.
    pub first_packet: u32,
}

impl Hello {
    /// The bytes of the hello, with the authentication code under `key`.
    pub fn encode(&self, key: &JobKey) -> [u8; BYTES] {
        let mut out = [0; BYTES];
        out[..4].copy_from_slice(MAGIC);
        (out[4], out[5]) = (VERSION, self.kind as u8);
        out[8..40].copy_from_slice(&self.identity.encode());
        out[40..48].copy_from_slice(&self.number.to_le_bytes());
        out[48..56].copy_from_slice(&self.echo.to_le_bytes());
        out[56..60].copy_from_slice(&self.queue_pair.to_le_bytes());
        out[60..64].copy_from_slice(&self.first_packet.to_le_bytes());
        let code = key.prove(LABEL, &[&out[..SIGNED]]);
        out[SIGNED..].copy_from_slice(&code);
        out
    }

    /// Reads a hello. `None` for bytes that are not a hello, or were not written with `key`.
    pub fn decode(bytes: &[u8], key: &JobKey) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let (signed, code) = bytes.split_last_chunk::<32>()?;
        if !key.proves(LABEL, &[signed], code) {
            return None;
        }
        Self::read(bytes)
    }

    /// Reads a hello without checking its authentication code. `None` for bytes that are not a hello.
    pub fn read(bytes: &[u8; BYTES]) -> Option<Self> {
        let kind = match bytes[4..8] {
            [VERSION, 0, 0, 0] => HelloKind::Reply,
            [VERSION, 1, 0, 0] => HelloKind::Request,
            [VERSION, 2, 0, 0] => HelloKind::Goodbye,
            [VERSION, 3, 0, 0] => HelloKind::Unknown,
            _ => return None,
        };
        if bytes[..4] != MAGIC[..] {
            return None;
        }
        let hello = Self {
            kind,
            identity: Identity::decode(&bytes_at(bytes, 8)),
            number: u64_at(bytes, 40),
            echo: u64_at(bytes, 48),
            queue_pair: u32_at(bytes, 56),
            first_packet: u32_at(bytes, 60),
        };
        let possible = hello.number != 0 && (2..1 << 24).contains(&hello.queue_pair) && hello.first_packet < 1 << 24;
        possible.then_some(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello = Hello {
        kind: HelloKind::Request,
        identity: Identity { job: 1, from: 2, to: 3, from_instance: 4, to_instance: 5 },
        number: 6,
        echo: 7,
        queue_pair: 8,
        first_packet: 9,
    };

    #[test]
    fn x1_golden_bytes() {
        let bytes = HELLO.encode(&JobKey::new([7; 32]));
        let golden = b"twvh\x02\x01\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\
            \x07\0\0\0\0\0\0\0\x08\0\0\0\x09\0\0\0";
        assert_eq!(bytes[..SIGNED], golden[..]);
        assert_eq!(Hello::decode(&bytes, &JobKey::new([7; 32])), Some(HELLO));
    }

    #[test]
    fn a_hello_with_another_key_or_a_changed_bit_is_refused() {
        let key = JobKey::new([7; 32]);
        let good = HELLO.encode(&key);
        assert_eq!(Hello::decode(&good, &JobKey::new([8; 32])), None);
        assert_eq!(Hello::decode(&good[..95], &key), None);
        for bit in 0..BYTES * 8 {
            let mut bytes = good;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Hello::decode(&bytes, &key), None, "bit {bit}");
        }
    }

    #[test]
    fn impossible_queue_pair_numbers_are_refused() {
        let key = JobKey::new([7; 32]);
        let wrong = [
            Hello { number: 0, ..HELLO },
            Hello { queue_pair: 1, ..HELLO },
            Hello { queue_pair: 1 << 24, ..HELLO },
            Hello { first_packet: 1 << 24, ..HELLO },
        ];
        for hello in wrong {
            assert_eq!(Hello::decode(&hello.encode(&key), &key), None, "{hello:?}");
        }
    }
}
