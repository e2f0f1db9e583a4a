//! Towline's TCP rail: non-blocking, vectored, authenticated.
//!
//! A [`Rail`] is one link to all peers. Several links are several rails, over which the engine stripes long messages. A rail
//! connects to a peer on first use. Before either end uses anything else, both prove by challenge and response that they
//! know the job's secret key. So port scans and foreign clients are refused; they are counted in [`Counters`] and do no other
//! harm.
//!
//! Where [`Config::encrypt`] says so, a connection is encrypted after the hello by keys that the hello agrees on
//! ([`towline_crypt`]).
//!
//! # Memory
//! A connection takes at most [`Config::bytes_per_connection`], all of it when it is established. Beyond that, a rail has
//! [`large_buffers`](Config::large_buffers) + 1 buffers of `max_send_size_bytes` for long bodies that must be packed; their pages
//! are touched as they are used. A long body that is contiguous is sent from the user's memory, and received into it.
//!
//! # Platform and threads
//! Linux only. A rail is not thread-safe: one thread uses it at a time. It may move between threads.
//!
//! # Inside
//! Each module uses only those below it:
//!
//! | module | subject |
//! |---|---|
//! | `rail` | the rail trait: peers, connection setup, arbitration, progress, dead hosts |
//! | `handshake` | one connection from its first byte to the acceptor's verdict |
//! | `stream` | one established connection: arriving frames, frames that wait to be sent, encryption, sending without a copy |
//! | [`limits`](Config::bytes_per_connection) | the memory of a connection |
//! | `system` | system calls and socket options |
//! | [`Config`], [`Settings`], [`Counters`] | configuration, its settings, and numbers of events |
//! | [`framing`], [`hello`] | the bytes on the wire, read and written by pure functions |

mod config;
mod counters;
mod handshake;
mod limits;
mod rail;
mod settings;
mod stream;
mod system;
mod wire;

pub use config::Config;
pub use counters::Counters;
pub use rail::Rail;
pub use settings::Settings;
pub use towline_net::{Encrypt, JobKey, SetupError};
pub use wire::{framing, hello};
