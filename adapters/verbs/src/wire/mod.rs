//! What peers exchange: cards, hellos, and keys of registered memory. Pure: no device in here.

pub mod card;
pub mod hello;
pub mod remote_key;
