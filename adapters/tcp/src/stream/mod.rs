//! One established connection: arriving frames, frames that wait to be sent, encryption, and sending without a copy.

pub(crate) mod block;
pub(crate) mod channel;
pub(crate) mod connection;
pub(crate) mod inbox;
pub(crate) mod outbox;
pub(crate) mod pack_buffers;
pub(crate) mod records;
mod ring;
pub(crate) mod splice;
