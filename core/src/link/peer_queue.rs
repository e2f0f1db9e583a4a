//! Queues of a link's peers.

/// A queue of peers.
pub(super) type PeerQueue<'m> = crate::queue::Queue<'m>;
