//! A virtio network device as an [`Interface`](datagram::Interface): each datagram is one Ethernet frame.
//!
//! The driver is the crate `virtio-drivers`, which may panic. So a program with this crate does not have the proof that no panic is
//! reachable. The rest of the program has it by a build without this crate.
#![no_std]

mod ethernet;
mod pool;

pub use ethernet::{Ethernet, Slots};
