//! The common parts of Towline's network rails (tcp, udp and verbs).
//!
//! | module or type | subject |
//! |---|---|
//! | [`JobKey`] | the secret of a job, and authentication codes (HMAC-SHA256) under it |
//! | [`Encrypt`], [`EncryptionMismatch`] | when a connection is encrypted, and the error if the settings of two ranks differ |
//! | [`Identity`] | job, ranks and instances in a hello, and the check that a hello is meant for this rail |
//! | [`card`] | the business card of a rail with IP addresses |
//! | [`interfaces`] | the addresses of this host, and the filter that allows or excludes them |
//! | [`listen`] | settings of ports and of the published address |
//! | [`sockets`] | the lengths of sockets' buffers that this host allows |
//! | [`route`] | which addresses of a peer are tried, and in which order |
//! | [`PeerTable`] | the peers of a rail, by endpoint and by rank |
//! | [`fields`] | fixed-size fields in byte arrays |
//! | [`random`], [`time`] | random bytes, and conversion of durations |
//! | [`SetupError`] | why a rail could not be opened |
//! | [`advice`] | what to do about an error of the operating system |
//! | [`counted`] | a number of things, as text |
//!
//! Nothing here connects or keeps state between calls, so everything may be used from any thread; a [`PeerTable`] belongs
//! to one rail and is used by one thread at a time. Linux only.

mod advice;
pub mod card;
mod counted;
mod encryption;
pub mod fields;
mod identity;
pub mod interfaces;
mod key;
pub mod listen;
mod peers;
pub mod random;
pub mod route;
mod setup;
pub mod sockets;
pub mod time;

pub use advice::advice;
pub use counted::counted;
pub use encryption::{Encrypt, EncryptionMismatch};
pub use identity::{Identity, Mismatch};
pub use key::JobKey;
pub use peers::{Member, PeerTable};
pub use setup::SetupError;
