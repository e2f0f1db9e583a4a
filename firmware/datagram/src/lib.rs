//! A rail over any network interface that sends and receives datagrams: Ethernet frames, UDP, or framed bytes of a serial line.
//!
//! A driver implements [`Interface`]. The rail adds 4 bytes to each frame. Interfaces lose, repeat and reorder datagrams, so the
//! rail is used inside a [link](towline_core::link).
#![no_std]

mod address;
mod counters;
mod interface;
mod peers;
mod rail;
mod received;

pub use address::Address;
pub use counters::Counters;
pub use interface::Interface;
pub use rail::{Config, Rail};
pub use received::PREFIX;
