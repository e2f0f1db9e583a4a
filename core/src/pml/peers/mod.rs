//! Peers: what is kept of each, its links, and how it is added, lost and forgotten.

pub(super) mod asks;
pub(super) mod credit;
pub(super) mod failed;
pub(super) mod flags;
pub(super) mod join;
pub(super) mod leave;
pub(super) mod link;
pub(super) mod links;
pub(super) mod state;
