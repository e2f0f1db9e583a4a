//! Links that go down and come back, and rails that are disabled.
//!
//! A link that its rail reports as down is suspended: it gets no new frames. Its frames that the peer has not acknowledged
//! *migrate*: other links carry them, as they have room. A migrated frame keeps the number that its first link gave it, so the
//! other side can tell whether it has arrived before. The other side *claims* each migrated frame: the engine asks all links
//! about it, and a link that was writing its body to memory hands over the rest. So every frame is handled once, whichever link
//! carried it, and the floors above are not affected. Message numbers keep the order of messages, as always. A link that is up
//! again sends those of its frames that have not migrated. A peer is lost when its last link fails.
//!
//! A disabled rail gets no new frames either. It still delivers the frames that it accepted before, and receives frames from the
//! peer. If no link is in use, messages wait for one.

pub(super) mod enable;
pub(super) mod errors;
pub(super) mod links;
pub(super) mod migrate;
