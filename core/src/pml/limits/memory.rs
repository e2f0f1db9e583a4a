//! The memory of an engine.

use crate::arena::Arena;
use crate::pml::limits::config::Config;
use crate::pml::matching::{HeldTable, Matcher};
use crate::pml::peers::link::PeerLink;
use crate::pml::peers::state::PeerState;
use crate::pml::rdma::{self, piece::Rdma};
use crate::pml::requests::state::RequestState;
use crate::pml::unexpected::state::Unexpected;
use crate::pool::{Pool, Slot};
use crate::ptl::Cache;
use crate::rail::Attributes;

impl Config {
    /// Most bytes that an engine over rails with these attributes takes from an arena, including the caches of prepared requests
    /// ([`Cache`]).
    pub const fn bytes(&self, rails: &[&Attributes]) -> usize {
        let links = (self.peers as usize).saturating_mul(rails.len());
        let mut caches = 0usize;
        let mut left = rails;
        while let [rail, rest @ ..] = left {
            if rdma::ENABLED && rail.cache_size != 0 {
                caches = caches.saturating_add(Cache::cost(rail.cache_size, rail.cache_bytes));
            }
            left = rest;
        }
        let words = (self.unit_bytes as usize).div_ceil(8);
        Arena::cost::<PeerState>(self.peers as usize)
            .saturating_add(Arena::cost::<PeerLink>(links))
            .saturating_add(caches)
            .saturating_add(Pool::<RequestState>::cost(self.requests))
            .saturating_add(Pool::<Unexpected>::cost(self.envelopes()))
            .saturating_add(Pool::<()>::cost(self.units))
            .saturating_add(Arena::cost::<u64>(words.saturating_mul(self.units as usize)))
            .saturating_add(Matcher::cost(self.requests, self.envelopes()))
            .saturating_add(HeldTable::cost(self.requests))
            .saturating_add(self.rma.bytes(self.peers))
            .saturating_add(Rdma::cost(&self.rdma))
    }
}

/// Sizes for memory budgets: bytes of a peer, a link, a request, and an unexpected message (without its payload unit).
pub const SIZES: [(&str, usize); 4] = [
    ("peer", size_of::<PeerState>()),
    ("link", size_of::<PeerLink>()),
    ("request", size_of::<Slot<RequestState>>()),
    ("unexpected message", size_of::<Slot<Unexpected>>()),
];
