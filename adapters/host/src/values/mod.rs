//! Plain values that users see: addresses and envelopes.

pub(crate) mod address;
pub(crate) mod message;
pub(crate) mod shortage;
pub(crate) mod tags;
