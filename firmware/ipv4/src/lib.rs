//! UDP over IPv4 as an [`Interface`](datagram::Interface), over any network card that sends and receives Ethernet frames.
//!
//! The stack is `smoltcp`: it resolves addresses by ARP, checks what arrives, and answers pings. It may panic, so a program with this
//! crate does not have the proof that no panic is reachable. The configuration is static: the Ethernet address of the card
//! has the IPv4 address in it (see [`address`]).
//!
//! | module | subject |
//! |---|---|
//! | [`address`] | IPv4 address, network, router and port of a card |
//! | `arp` | requests of ARP, beside those of the stack |
//! | [`card`] | what a driver of a card provides |
//! | [`memory`] | memory for sockets and datagrams |
//! | [`udp`] | the interface |
#![no_std]

pub mod address;
mod arp;
pub mod card;
pub mod memory;
pub mod udp;

pub use card::Card;
pub use memory::{Bytes, Memory, Tables};
pub use udp::Udp;
