//! What a rank and a server send to each other, without a part in either: connections, the handshake, and sealed frames.

pub(crate) mod channel;
pub(crate) mod handshake;
pub(crate) mod stream;
