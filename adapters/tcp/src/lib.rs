//! Towline's TCP rail: non-blocking, vectored, authenticated.
//!
//! A [`Rail`] is one link to all peers; several links are several rails, over which the engine stripes. Connections are
//! made on first use. Both ends prove by challenge that they know the job's secret key before anything else is
//! believed, so port scans and foreign clients are refused, counted in [`Counters`], and otherwise harmless.
//!
//! The bytes that travel are read and written by pure functions: [`hello`], [`framing`]. Which interfaces and
//! addresses are used is decided in [`towline_net`]; every tunable is in [`Config`].
//!
//! Where [`Config::encrypt`] says so, what follows the hello is sealed by keys that the hello has brought
//! ([`towline_crypt`]).
//!
//! Memory: a connection takes [`Config::bytes_per_connection`] at most, all of it when it comes up; a rail has
//! `large_buffers` and one more of `max_send_size_bytes` for long bodies that must be packed, touched as they are used. A
//! long body that lies in one piece is sent from where it lies, and received to where it belongs.
//!
//! Linux only. Not thread-safe: a rail is used by one thread at a time, and may move between threads.

mod config;
mod counters;
mod handshake;
mod rail;
mod stream;
mod system;
mod tunables;
mod wire;

pub use config::Config;
pub use counters::Counters;
pub use rail::Rail;
pub use towline_net::{Encrypt, JobKey, SetupError};
pub use tunables::Tunable;
pub use wire::{framing, hello};
