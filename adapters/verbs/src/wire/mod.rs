//! The data that peers exchange: cards, hellos, and keys of registered memory. No code here calls a device.

pub mod card;
pub mod hello;
pub mod remote_key;
