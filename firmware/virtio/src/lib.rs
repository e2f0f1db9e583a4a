//! Virtio network devices as [`Interface`](datagram::Interface)s: each datagram is one Ethernet frame, or one UDP datagram of IPv4.
//!
//! The driver is the crate `virtio-drivers`, which may panic, and so may the IPv4 stack. So a program with this crate does not have the
//! proof that no panic is reachable. The rest of the program has it by a build without this crate.
//!
//! | module | subject |
//! |---|---|
//! | [`network`] | which of the two a device is for |
//! | [`ethernet`] | datagrams as Ethernet frames |
//! | [`nic`] | a device: frames into and from its memory |
//! | [`interrupts`] | the requests of devices, which end a wait |
//! | `pool` | memory for the queues of devices |
#![no_std]

pub mod ethernet;
pub mod interrupts;
pub mod network;
pub mod nic;
mod pool;

pub use ethernet::Ethernet;
pub use network::Network;
pub use nic::{LINKS, Nic, Slots};
