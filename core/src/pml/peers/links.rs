//! The links of a peer: a row of the table, in the order of their use.

use zerocopy::FromZeros;

use crate::pml::engine::Pml;
use crate::pml::peers::flags::LINKED;
use crate::pml::peers::link::{DOWN, PeerLink};
use crate::pml::peers::state::Route;
use crate::pml::rails::Rails;
use crate::rail::{Endpoint, Failover, GiveUp, Liveness, MULTIRAIL, Rail};
use crate::wire;

impl<R: Rails> Pml<'_, R> {
    /// The link in the `index`-th place of a peer's row.
    #[inline]
    pub(in crate::pml) fn link(&self, peer: u32, index: usize) -> Option<&PeerLink> {
        self.links.get((peer as usize).wrapping_mul(self.rails.count()).wrapping_add(index))
    }

    /// The links of a peer, the suspended ones included.
    pub(in crate::pml) fn peer_links(&self, peer: u32) -> impl Iterator<Item = &PeerLink> {
        let count = self.rails.count();
        let start = (peer as usize).wrapping_mul(count);
        let row = self.links.get(start..start.wrapping_add(count)).unwrap_or_default();
        row.iter().take_while(|link| link.bandwidth != 0)
    }

    /// The whole row of a peer, including places without a link.
    pub(in crate::pml) fn peer_links_mut(&mut self, peer: u32) -> &mut [PeerLink] {
        let count = self.rails.count();
        let start = (peer as usize).wrapping_mul(count);
        self.links.get_mut(start..start.wrapping_add(count)).unwrap_or_default()
    }

    /// Sorts a peer's links and counts those in use.
    pub(in crate::pml) fn sort_links(&mut self, peer: u32) {
        if !MULTIRAIL {
            let link = self.link(peer, 0).copied().unwrap_or(PeerLink::new_zeroed());
            let used = u8::from(link.bandwidth != 0 && link.suspended == 0);
            if let Some(state) = self.peers.get_mut(peer as usize) {
                state.route = Route { endpoint: link.endpoint, rail: 0, firsts: used, turn: 0, links: used };
            }
            return;
        }
        sort(self.peer_links_mut(peer));
        let used = || self.peer_links(peer).filter(|link| link.suspended == 0);
        let none = PeerLink { rail: u8::MAX, ..PeerLink::new_zeroed() };
        let first = used().next().copied().unwrap_or(none);
        let (links, firsts) = (used().count(), used().filter(|link| link.latency == first.latency).count());
        if let Some(state) = self.peers.get_mut(peer as usize) {
            (state.route.links, state.route.firsts, state.route.turn) = (links as u8, firsts as u8, 0);
            (state.route.rail, state.route.endpoint) = (first.rail, first.endpoint);
        }
    }

    /// Suspends a link for the reason `mark`, or ends that suspension.
    pub(in crate::pml) fn set_suspended(&mut self, peer: u32, rail: usize, mark: u8, suspended: bool) {
        // A link that is up again must not catch up with the bytes that others carried meanwhile.
        let least = self.peer_links(peer).filter(|link| link.suspended == 0).map(|link| link.share).min();
        let Some(link) = self.peer_links_mut(peer).iter_mut().find(|link| link.is_of(rail)) else { return };
        if suspended {
            link.suspended |= mark;
        } else {
            link.suspended &= !mark;
            link.share = link.share.max(least.unwrap_or(0));
        }
        self.sort_links(peer);
        self.queue_work(peer);
    }

    /// Makes all rails forget a peer. `lost`: the peer did not end normally.
    pub(in crate::pml) fn forget_links(&mut self, peer: u32, lost: bool) {
        for place in 0..self.rails.count() {
            let Some(link) = self.peer_links(peer).nth(place).copied() else { break };
            if let Some(rail) = self.rails.rail_mut(link.rail as usize) {
                if lost {
                    rail.give_up(Endpoint(link.endpoint), GiveUp::Peer);
                } else {
                    rail.del_peer(Endpoint(link.endpoint));
                }
            }
        }
        self.peer_links_mut(peer).fill_with(PeerLink::new_zeroed);
    }

    /// Bytes of the longest body of a fragment that any rail to the peer can carry. No limit if frames cannot migrate: then each
    /// rail takes as much as it can.
    pub(in crate::pml) fn longest_fragment(&self, peer: u32) -> u64 {
        if !MULTIRAIL || !self.peers.get(peer as usize).is_some_and(|state| state.has(LINKED)) {
            return u64::MAX;
        }
        let rails = self.peer_links(peer).filter_map(|link| self.rails.rail(link.rail as usize));
        let longest = rails.map(|rail| rail.attributes().max_send_size).min().unwrap_or(u32::MAX);
        u64::from(longest.saturating_sub(size_of::<wire::Fragment>() as u32))
    }

    /// The endpoint of a peer on a rail.
    pub(in crate::pml) fn link_of(&self, peer: u32, rail: usize) -> Option<Endpoint> {
        self.peer_links(peer).find(|link| link.is_of(rail)).map(|link| Endpoint(link.endpoint))
    }

    /// The link that carries the next first fragment.
    pub(in crate::pml) fn first_link(&self, to: u32) -> Option<(usize, Endpoint)> {
        let peer = self.peers.get(to as usize)?;
        Some((peer.route.rail as usize, Endpoint(peer.route.endpoint)))
    }

    /// Whether all rails to a peer have drained ([`Rail::drained`]).
    pub(in crate::pml) fn drained(&self, to: u32) -> bool {
        self.peer_links(to).all(|link| {
            let (rail, endpoint) = (self.rails.rail(link.rail as usize), Endpoint(link.endpoint));
            // A link that is down counts as drained once other links have taken its undelivered frames.
            rail.is_none_or(|rail| {
                rail.drained(endpoint)
                    || (MULTIRAIL && link.suspended & DOWN != 0 && rail.next_unacked(endpoint).is_none())
            })
        })
    }
}

/// Sorts links: those in use first, of these the lowest latency, then the lowest rail. Places without a link come last. Links are
/// few, and the library's sorts can panic.
fn sort(row: &mut [PeerLink]) {
    let key = |link: &PeerLink| (link.bandwidth == 0, link.suspended != 0, link.latency, link.rail);
    let mut rest = row;
    while let Some((first, others)) = rest.split_first_mut() {
        for other in others.iter_mut() {
            if key(other) < key(first) {
                core::mem::swap(first, other);
            }
        }
        rest = others;
    }
}
