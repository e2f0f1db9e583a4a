//! The identity in a hello: job, ranks and instances of sender and receiver.
//!
//! | bytes | content, little-endian |
//! |---|---|
//! | 0..8 | job |
//! | 8..12 | rank of the sender |
//! | 12..16 | rank of the receiver |
//! | 16..24 | instance of the sender, as in its card |
//! | 24..32 | instance of the receiver, as in its card |

use std::fmt;

use crate::fields::{u32_at, u64_at};

/// Job, ranks and instances of the two ends of a hello, as its sender sees them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The job.
    pub job: u64,
    /// Rank of the sender.
    pub from: u32,
    /// Rank of the receiver.
    pub to: u32,
    /// Instance of the sender.
    pub from_instance: u64,
    /// Instance of the receiver, by which a rail recognizes a hello that was meant for the earlier owner of its port.
    pub to_instance: u64,
}

/// The first part of a received identity that differs from the part that this rail expects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mismatch {
    /// The hello belongs to another job.
    Job,
    /// Another rank sent the hello, or is its receiver.
    Rank,
    /// Another instance of the rank sent the hello, or is its receiver.
    Instance,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Job => "job",
            Self::Rank => "rank",
            Self::Instance => "instance",
        })
    }
}

impl Identity {
    /// Bytes of an identity on the wire.
    pub const BYTES: usize = 32;

    /// The identity as bytes, for the wire.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&self.job.to_le_bytes());
        out[8..12].copy_from_slice(&self.from.to_le_bytes());
        out[12..16].copy_from_slice(&self.to.to_le_bytes());
        out[16..24].copy_from_slice(&self.from_instance.to_le_bytes());
        out[24..].copy_from_slice(&self.to_instance.to_le_bytes());
        out
    }

    /// Reads an identity. Any bytes are a possible identity.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            job: u64_at(bytes, 0),
            from: u32_at(bytes, 8),
            to: u32_at(bytes, 12),
            from_instance: u64_at(bytes, 16),
            to_instance: u64_at(bytes, 24),
        }
    }

    /// The same two ends, as the receiver sees them.
    pub const fn reversed(self) -> Self {
        let Self { job, from, to, from_instance, to_instance } = self;
        Self { job, from: to, to: from, from_instance: to_instance, to_instance: from_instance }
    }

    /// Checks that a received identity names this rail as the receiver.
    ///
    /// # Errors
    /// The first part that differs.
    pub fn check_receiver(&self, job: u64, rank: u32, instance: u64) -> Result<(), Mismatch> {
        if self.job != job {
            Err(Mismatch::Job)
        } else if self.to != rank {
            Err(Mismatch::Rank)
        } else if self.to_instance != instance {
            Err(Mismatch::Instance)
        } else {
            Ok(())
        }
    }

    /// Checks that a received identity names the expected sender.
    ///
    /// # Errors
    /// The first part that differs.
    pub fn check_sender(&self, rank: u32, instance: u64) -> Result<(), Mismatch> {
        if self.from != rank {
            Err(Mismatch::Rank)
        } else if self.from_instance != instance {
            Err(Mismatch::Instance)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity =
        Identity { job: 0x1122_3344_5566_7788, from: 0x0102_0304, to: 5, from_instance: 6, to_instance: 7 };

    #[test]
    fn x1_golden_bytes() {
        let golden = *b"\x88\x77\x66\x55\x44\x33\x22\x11\x04\x03\x02\x01\x05\0\0\0\x06\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0";
        assert_eq!(IDENTITY.encode(), golden);
        assert_eq!(Identity::decode(&golden), IDENTITY);
    }

    #[test]
    fn the_first_part_that_differs_is_reported() {
        let Identity { job, from, to, from_instance, to_instance } = IDENTITY;
        assert_eq!(IDENTITY.check_receiver(job, to, to_instance), Ok(()));
        assert_eq!(IDENTITY.check_receiver(job + 1, to + 1, to_instance), Err(Mismatch::Job));
        assert_eq!(IDENTITY.check_receiver(job, to + 1, to_instance + 1), Err(Mismatch::Rank));
        assert_eq!(IDENTITY.check_receiver(job, to, to_instance + 1), Err(Mismatch::Instance));
        assert_eq!(IDENTITY.check_sender(from, from_instance), Ok(()));
        assert_eq!(IDENTITY.check_sender(from + 1, from_instance + 1), Err(Mismatch::Rank));
        assert_eq!(IDENTITY.check_sender(from, from_instance + 1), Err(Mismatch::Instance));
        assert_eq!(IDENTITY.reversed().check_receiver(job, from, from_instance), Ok(()));
    }
}
