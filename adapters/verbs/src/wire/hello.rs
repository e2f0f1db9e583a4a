//! How two ends tell each other of the queue pairs that are to be connected: by datagrams of verbs themselves, that may get lost.
//! Pure: no device in here.
//!
//! Either end may begin, or both: there is one kind of hello. Each end makes a queue pair of its own and numbers it, higher than
//! any before.
//!
//! ```text
//! A                                        B
//!   queue pair a, echo -, asks       ->                                        makes b, connects it to a
//!                                    <-    queue pair b, echo a, asks          connects a to b; a may send
//!   queue pair a, echo b             ->                                        b may send
//! ```
//!
//! Who is not sure that the other end has connected asks, again and again; who is asked answers. A hello with a lower number than
//! one before is an old one, and one with a higher number than the connection's says that the other end has begun anew.
//! A good-bye names both numbers, and so does who knows nothing of a connection that the other end has. The code of a hello is HMAC-SHA256 under the job's key over all before it: who does not know
//! the key gets no connection. What travels by a connection is neither signed nor encrypted; the network is to be trusted.
//!
//! | bytes | what, little-endian |
//! |---|---|
//! | 0..4 | `"twvh"` |
//! | 4 | [version](crate::wire::card::VERSION) |
//! | 5 | 1: asks for an answer; 2: good-bye; 3: knows of no such connection; else 0 |
//! | 6..8 | zero |
//! | 8..16 | job |
//! | 16..20 | rank of who speaks |
//! | 20..24 | rank of who is meant |
//! | 24..32 | instance of who speaks, as in its card |
//! | 32..40 | instance of who is meant |
//! | 40..48 | number of the speaker's connection |
//! | 48..56 | number of the connection at who is meant, as far as it is known; else zero |
//! | 56..60 | number of the speaker's queue pair |
//! | 60..64 | number of the first packet that it will send |
//! | 64..96 | code |

use towline_tcp::JobKey;

use crate::wire::card::VERSION;

/// Bytes of a hello.
pub const BYTES: usize = 96;

const MAGIC: &[u8; 4] = b"twvh";
const SAID: usize = 64;
const LABEL: &[u8; 16] = b"towlineverbshell";

/// What a hello is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Stage {
    /// The speaker has connected, and knows that the other end has.
    Tells = 0,
    /// The speaker wants an answer.
    Asks = 1,
    /// The speaker has closed in good order.
    Bye = 2,
    /// The speaker has no such connection, or has it no more.
    Unknown = 3,
}

/// A hello, read. Whoever wrote it knows the job's key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// What for.
    pub stage: Stage,
    /// Which job.
    pub job: u64,
    /// Rank of who speaks.
    pub from: u32,
    /// Rank of who is meant.
    pub to: u32,
    /// Instance of who speaks.
    pub from_instance: u64,
    /// Instance of who is meant.
    pub to_instance: u64,
    /// Number of the speaker's connection.
    pub number: u64,
    /// Number of the other end's connection, if it is known.
    pub echo: u64,
    /// Number of the speaker's queue pair.
    pub queue_pair: u32,
    /// Number of its first packet.
    pub first_packet: u32,
}

impl Hello {
    /// As it travels.
    pub fn encode(&self, key: &JobKey) -> [u8; BYTES] {
        let mut out = [0; BYTES];
        out[..4].copy_from_slice(MAGIC);
        (out[4], out[5]) = (VERSION, self.stage as u8);
        out[8..16].copy_from_slice(&self.job.to_le_bytes());
        out[16..20].copy_from_slice(&self.from.to_le_bytes());
        out[20..24].copy_from_slice(&self.to.to_le_bytes());
        out[24..32].copy_from_slice(&self.from_instance.to_le_bytes());
        out[32..40].copy_from_slice(&self.to_instance.to_le_bytes());
        out[40..48].copy_from_slice(&self.number.to_le_bytes());
        out[48..56].copy_from_slice(&self.echo.to_le_bytes());
        out[56..60].copy_from_slice(&self.queue_pair.to_le_bytes());
        out[60..64].copy_from_slice(&self.first_packet.to_le_bytes());
        let code = key.prove(LABEL, &[&out[..SAID]]);
        out[SAID..].copy_from_slice(&code);
        out
    }

    /// Reads one; `None` for what is none, or was written by somebody without the key.
    pub fn decode(bytes: &[u8], key: &JobKey) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let (said, code) = bytes.split_last_chunk::<32>()?;
        if !key.proves(LABEL, &[said], code) {
            return None;
        }
        Self::read(bytes)
    }

    /// Reads one of whom ever.
    pub fn read(bytes: &[u8; BYTES]) -> Option<Self> {
        let stage = match bytes[4..8] {
            [VERSION, 0, 0, 0] => Stage::Tells,
            [VERSION, 1, 0, 0] => Stage::Asks,
            [VERSION, 2, 0, 0] => Stage::Bye,
            [VERSION, 3, 0, 0] => Stage::Unknown,
            _ => return None,
        };
        if bytes[..4] != MAGIC[..] {
            return None;
        }
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let hello = Self {
            stage,
            job: long(8),
            from: word(16),
            to: word(20),
            from_instance: long(24),
            to_instance: long(32),
            number: long(40),
            echo: long(48),
            queue_pair: word(56),
            first_packet: word(60),
        };
        let possible = hello.number != 0 && (2..1 << 24).contains(&hello.queue_pair) && hello.first_packet < 1 << 24;
        possible.then_some(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello = Hello {
        stage: Stage::Asks,
        job: 1,
        from: 2,
        to: 3,
        from_instance: 4,
        to_instance: 5,
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
        assert_eq!(bytes[..SAID], golden[..]);
        assert_eq!(Hello::decode(&bytes, &JobKey::new([7; 32])), Some(HELLO));
    }

    #[test]
    fn who_does_not_know_the_key_or_changes_a_bit_says_nothing() {
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
    fn numbers_that_no_queue_pair_has_are_refused() {
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
