//! The bytes on the wire, read and written by pure functions. Nothing here uses the other modules of the crate.

pub mod card;
pub mod datagram;
pub mod format;
pub mod hello;
