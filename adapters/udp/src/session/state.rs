//! The state of a session.

use towline_crypt::{Cipher, MESSAGE, ReplayWindow};

use crate::session::auth::Authenticator;
use crate::wire::hello::{Hello, Nonce, Stage};

/// The agreement of two ends.
#[derive(Debug)]
pub(crate) struct Session {
    /// This end's challenge.
    pub(super) own: Nonce,
    /// The other end's challenge.
    pub(super) theirs: Nonce,
    /// Index of this end at the other end.
    pub(crate) index: u32,
    /// Makes the proofs of sent datagrams.
    pub(crate) outbound: Authenticator,
    /// Checks the proofs of received datagrams.
    pub(crate) inbound: Authenticator,
    /// Encryption, where datagrams are encrypted.
    pub(crate) encryption: Option<Encryption>,
    /// This end's message of the key exchange.
    pub(super) keys: [u8; MESSAGE],
}

/// The encryption of the datagrams of a session.
#[derive(Debug)]
pub(crate) struct Encryption {
    pub(crate) cipher: Cipher,
    /// Number of the next datagram to be sent.
    pub(crate) next_number: u64,
    /// Numbers of the datagrams that were received.
    pub(crate) received: ReplayWindow,
}

impl Session {
    /// A hello that says that the session exists. With [`Stage::Verified`] it also asks whether it exists at the other end.
    pub(super) fn hello(&self, stage: Stage, base: &Hello) -> Hello {
        Hello { stage, nonce: self.own, echo: self.theirs, keys: self.keys, ..*base }
    }
}
