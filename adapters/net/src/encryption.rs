//! When the traffic of two ranks is encrypted, and the error if their settings differ.

use std::fmt;

pub use towline_crypt::Encrypt;

/// Two ranks have different settings: one encrypts their traffic, the other does not. They refuse each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EncryptionMismatch {
    /// The rank of the peer.
    pub rank: u32,
    /// Whether the peer encrypts, and its setting.
    pub theirs: (bool, Encrypt),
    /// Whether this rank encrypts, and its setting.
    pub ours: (bool, Encrypt),
}

impl fmt::Display for EncryptionMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, theirs, ours } = self;
        let verb = |encrypts: bool| if encrypts { "encrypts" } else { "does not encrypt" };
        write!(
            f,
            "rank {rank} {} this connection (its setting is `{}`), but this rank {} it (its setting is `{}`): set \
             TOWLINE_ENCRYPT to the same value for all ranks",
            verb(theirs.0),
            theirs.1,
            verb(ours.0),
            ours.1
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_names_both_settings_and_the_variable() {
        let mismatch =
            EncryptionMismatch { rank: 3, theirs: (true, Encrypt::Always), ours: (false, Encrypt::Off) }.to_string();
        for part in ["rank 3 encrypts", "`always`", "does not encrypt it", "`off`", "TOWLINE_ENCRYPT"] {
            assert!(mismatch.contains(part), "{mismatch}");
        }
    }
}
