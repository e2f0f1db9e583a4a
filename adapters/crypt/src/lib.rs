//! Encryption of the rails that leave a process by the network.
//!
//! Two ends that know the job's key agree on keys for one connection by the [Noise protocol](https://noiseprotocol.org),
//! pattern `NNpsk0`: both draw an ephemeral key pair, and the job's key goes into all that they derive. So whoever does not
//! know it gets nowhere, and whoever learns it later cannot read what was recorded before (forward secrecy). Each message is 48
//! bytes and travels in a hello, whose proof covers it. The library is `snow`; nothing of the cryptography is ours.
//!
//! What follows is sealed in [`record`]s over a stream, each with the number that it has in its direction, or by explicit
//! numbers in datagrams, which a [`Window`] takes once each. Nothing here does I/O, and after the handshake nothing allocates.

#![forbid(unsafe_code)]

mod handshake;
mod policy;
pub mod record;
mod window;

pub use handshake::{Cipher, Forged, Handshake, MESSAGE, NoHandshake, TAG};
pub use policy::Encrypt;
pub use window::Window;
