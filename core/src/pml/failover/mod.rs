//! Links that go down and come back, and rails that are disabled: what is set suspended, and who carries its frames.
//!
//! A link that its rail reports as down takes nothing new. What the peer has not acknowledged of it are its migrating: other
//! links carry them, as they have room, named as the link had numbered them, so that the other side can tell which of
//! them had arrived before. There each is claimed: all links are asked what they know of it, and one that was in the middle
//! of writing its body to memory hands that over. So every frame is taken once, whatever came by two ways, and floors above
//! notice nothing; messages come in their order by number, as always. A link that comes back sends again by itself what
//! has not been moved. A peer is lost with its last link.
//!
//! A disabled rail takes nothing new either, but what it has been given it delivers, and it still brings what the peer
//! sends. With no link in use, messages wait for one.

pub(super) mod enable;
pub(super) mod errors;
pub(super) mod links;
pub(super) mod migrate;
