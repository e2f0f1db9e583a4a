//! Peers: the state of each peer, its links, and how a peer is added, lost and deleted.

pub(super) mod arrivals;
pub(super) mod arrivals_state;
pub(super) mod asks;
pub(super) mod credit;
pub(super) mod failed;
pub(super) mod flags;
pub(super) mod join;
pub(super) mod leave;
pub(super) mod link;
pub(super) mod links;
pub(super) mod state;
