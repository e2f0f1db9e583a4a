//! Towline's UDP rail: datagrams in batches, authenticated, to be wrapped in a link.
//!
//! A [`Rail`] is one socket that reaches all peers. It loses, duplicates and reorders frames as the network does. So its
//! attributes say `NEED_ACK | NEED_CSUM`, and it is of use only inside `towline_core::link::Link`. Frames to one peer that are
//! committed in a row are sent by one system call where the kernel segments datagrams itself (`UDP_SEGMENT`), and received by one
//! call (`UDP_GRO`).
//!
//! # On the wire
//! Every frame is one datagram ([`datagram`]). Before the first one, both ends prove by challenge and response that they know the
//! job's secret key ([`hello`]). They also agree on how their datagrams are authenticated ([`session`]): by a token of 64 bits
//! that no other process knows, or with [`Config::sign`] by a MAC over each datagram. All other datagrams are counted in
//! [`Counters`], dropped and not answered, so no attacker can make a rail send more than it received. There is one exception: a
//! sender at the address of a peer that was removed is sent the last goodbye again, at most ten times a second. A session
//! continues while another one is made in its place, and a replayed hello does not disturb a session.
//!
//! The token keeps out an attacker that does not see the datagrams; the MAC also keeps out an attacker that sees and changes
//! them. Neither hides the content, which encryption does ([`Config::encrypt`]). A replayed datagram is a duplicate like any
//! other, and the link removes it.
//!
//! # Memory
//! A rail allocates [`Config::bytes`] when it is opened, and a few hundred bytes for each peer when that is added.
//!
//! # Platform and threads
//! Linux only. A rail is not thread-safe: one thread uses it at a time. It may move between threads.
//!
//! # Inside
//! Each module uses only those below it:
//!
//! | module | subject |
//! |---|---|
//! | `rail` | the rail trait: peers, connection setup, sending, receiving, liveness |
//! | `probes` | whether a peer's port is closed, and whether its host is alive |
//! | `queues` | frames that wait to be sent, received datagrams, pacing |
//! | [`session`] | how two ends agree on a session, and how its datagrams are authenticated |
//! | `system` | system calls, batches of messages, error reports, segmentation |
//! | [`Config`], [`Settings`], [`Counters`] | configuration, its settings, and numbers of events |
//! | [`card`], [`datagram`], [`hello`] | the bytes on the wire, read and written by pure functions |

mod config;
mod counters;
mod limits;
mod probes;
mod queues;
mod rail;
pub mod session;
mod settings;
mod system;
mod wire;

pub use config::Config;
pub use counters::Counters;
pub use rail::{Buffers, Rail};
pub use settings::Settings;
pub use towline_net::{Encrypt, JobKey, SetupError};
pub use wire::format::{BadDatagram, VERSION};
pub use wire::{card, datagram, hello};
