//! The protocol between a rank and the server: streams, the handshake, and sealed frames. Both sides use it.

pub(crate) mod channel;
pub(crate) mod handshake;
pub(crate) mod stream;
