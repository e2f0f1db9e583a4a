//! Towline's UDP rail: datagrams in batches, authenticated, to be wrapped in a link.
//!
//! A [`Rail`] is one socket that reaches all peers. It loses, doubles and reorders frames as the network does, so it says
//! `NEED_ACK | NEED_CSUM`, and is of use inside `towline_core::link::Link` only. Frames that are committed in a row to
//! one peer leave in one call where the kernel cuts datagrams itself (`UDP_SEGMENT`), and come in so (`UDP_GRO`).
//!
//! # On the wire
//! Every frame is one datagram ([`datagram`]). Before any, both ends prove by challenge that they know the job's secret key
//! ([`hello`]), and agree on what marks their datagrams: 64 bits that nobody else knows, or where [`Config::sign`] says so a
//! code over each datagram ([`session`]). All else is counted in [`Counters`], dropped, and not answered, so nobody can be made
//! to send more than was sent to him; but to the place of a peer that was forgotten, whose last good-bye is said to it once more,
//! ten times a second at most. A session goes on while another one takes its place, and an old hello disturbs none.
//!
//! The mark keeps out whoever cannot see the datagrams; the code also whoever can see and change them. Neither hides what is
//! in them. What is sent again by others is a double like any other, and removed by the link.
//!
//! # Memory
//! All of it is taken when the rail is made, [`Config::bytes`], but for a few hundred bytes for each peer when that is added.
//!
//! Linux only. Not thread-safe: a rail is used by one thread at a time, and may move between threads.

mod config;
mod counters;
mod queues;
mod rail;
pub mod session;
mod system;
mod wire;

pub use config::Config;
pub use counters::Counters;
pub use rail::{Buffers, Rail};
pub use wire::{card, datagram, hello};
