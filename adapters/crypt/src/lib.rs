//! Encryption for rails that use a network.
//!
//! Two ends that hold the job key agree on keys for one connection by the [Noise protocol](https://noiseprotocol.org),
//! pattern `NNpsk0`. Both generate an ephemeral key pair, and all keys are derived from these pairs and the job key. So
//! an end without the job key cannot complete the handshake, and an attacker who learns the job key later cannot read
//! traffic that was recorded before (forward secrecy). Each message of the handshake has 48 bytes and travels in a
//! hello, whose proof covers it. All cryptography is that of the library `snow`.
//!
//! After the handshake, a stream is sealed in [`record`]s, numbered in each direction. Datagrams carry explicit
//! numbers, and a [`ReplayWindow`] accepts each number once. This crate does no I/O, and after the handshake it
//! allocates nothing.

#![forbid(unsafe_code)]

mod handshake;
mod policy;
pub mod record;
mod replay;

pub use handshake::{Cipher, Forged, Handshake, MESSAGE, NoHandshake, TAG};
pub use policy::Encrypt;
pub use replay::ReplayWindow;
