//! The bytes on the wire, read and written by pure functions. Nothing here uses the other rooms of the crate.

pub mod card;
pub mod datagram;
pub mod format;
pub mod hello;
