//! Links that go down and come back, and rails that are disabled.
//!
//! A link that its rail reports as down is suspended: it takes nothing new. Its frames that the peer has not acknowledged
//! *migrate*: other links carry them, as they have room. Such a frame keeps the number that its first link gave it, so the other
//! side can tell whether it had arrived before. There each frame is claimed: all links are asked what they know of it, and a link
//! that was writing its body to memory hands the rest over. So every frame is taken once, whichever way it came, and floors above
//! notice nothing. Messages keep their order by number, as always. A link that comes back sends by itself what has not migrated. A
//! peer is lost with its last link.
//!
//! A disabled rail takes nothing new either. It still delivers what it was given, and takes what the peer sends. If no link is in
//! use, messages wait for one.

pub(super) mod enable;
pub(super) mod errors;
pub(super) mod links;
pub(super) mod migrate;
