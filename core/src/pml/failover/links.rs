//! Links that go down, fall silent and come back.

use crate::pml::engine::Pml;
use crate::pml::peers::flags::{LINKED, MIGRATING};
use crate::pml::peers::link::{DOWN, PeerLink, SPARE};
use crate::pml::peers::state::{PeerState, PeerStatus};
use crate::pml::rails::Rails;
use crate::pml::stall::liveness::HEARD;
use crate::rail::{Endpoint, Failover, GiveUp, Liveness, Lost, MULTIRAIL, Peer};
use crate::time::Instant;

impl<R: Rails> Pml<'_, R> {
    /// Whether another rail can take over from one that fails. For an array with one rail this is a constant, so that the code of
    /// failover is not linked.
    pub(in crate::pml) fn has_other_rails(&self) -> bool {
        MULTIRAIL && self.rails.count() > 1
    }

    /// Handles the report of a rail that its link to a peer is down.
    pub(in crate::pml) fn link_down(&mut self, rail: usize, peer: Peer, why: Lost) {
        let Some(state) = self.peers.get(peer.0 as usize) else { return };
        if state.status != PeerStatus::Up || !self.peer_links(peer.0).any(|link| link.is_of(rail)) {
            return;
        }
        // After a peer's goodbye, no frame will come by a link that is not connected yet.
        let ended = |link: &PeerLink| {
            let rail = self.rails.rail(link.rail as usize).filter(|_| why == Lost::Closed);
            rail.is_some_and(|rail| !rail.is_connected(Endpoint(link.endpoint)))
        };
        let alone = !self.has_other_rails()
            || self.peer_links(peer.0).all(|link| link.is_of(rail) || link.suspended & DOWN != 0 || ended(link));
        // A rail that only lacks room for more frames delivers those that it has taken, so none has to migrate.
        if alone || !(state.has(LINKED) || why == Lost::NoRoom) {
            return self.lost(peer, why);
        }
        warn!("peer {}: rail {} is down: {}", peer.0, rail, why as u8);
        self.counters.links_down = self.counters.links_down.wrapping_add(1);
        let link = self.peer_links(peer.0).find(|link| link.is_of(rail)).map(|link| Endpoint(link.endpoint));
        let unacked = link.and_then(|link| self.rails.rail(rail)?.next_unacked(link));
        self.set_suspended(peer.0, rail, DOWN, true);
        self.use_spare(peer.0);
        self.lose_device(rail, peer);
        self.drop_pieces(rail, peer);
        if let Some(state) = self.peers.get_mut(peer.0 as usize) {
            state.set(MIGRATING);
            if unacked.is_some() {
                state.liveness.set(HEARD); // the peer may not have received the frames that this link sent
            }
        }
        self.migrating = true;
    }

    /// Takes a spare link of a peer into use if no other link is.
    fn use_spare(&mut self, peer: u32) {
        if self.peers.get(peer as usize).is_none_or(|state| state.route.links != 0) {
            return;
        }
        for place in 0..self.rails.count() {
            let Some(link) = self.peer_links(peer).nth(place).copied() else { break };
            if link.suspended & SPARE != 0 {
                self.rails.poll_spares();
                return self.set_suspended(peer, link.rail.into(), SPARE, false);
            }
        }
    }

    /// Handles the report of a rail that it has lost a peer. If another rail to the peer still has frames of it, that rail reports
    /// the loss when these were polled.
    pub(in crate::pml) fn rail_lost(&mut self, rail: usize, peer: Peer, why: Lost) {
        let others = if self.has_other_rails() { self.rails.count() } else { 0 };
        for place in 0..others {
            let Some(link) = self.peer_links(peer.0).nth(place).copied() else { break };
            let other = self.rails.rail_mut(link.rail as usize).filter(|_| !link.is_of(rail));
            if other.is_some_and(|other| other.end_after_frames(Endpoint(link.endpoint), why)) {
                return self.set_suspended(peer.0, rail, DOWN, true);
            }
        }
        self.lost(peer, why);
    }

    /// Handles the report of a rail that it receives only answers of the peer's host, although the peer itself should have
    /// answered by the time `due`. If another link has received from the peer, the reported link has failed, and its frames
    /// migrate. If no link has, the peer may be stopped, and is not lost. Returns whether the link was given up.
    pub(in crate::pml) fn link_silent(&mut self, rail: usize, peer: Peer, due: Option<Instant>) -> bool {
        let failed = |state: &PeerState| state.status != PeerStatus::Up || !state.has(LINKED);
        if !self.has_other_rails() || self.peers.get(peer.0 as usize).is_none_or(failed) {
            return false;
        }
        let (mut silent, mut heard) = (None, false);
        for place in 0..self.rails.count() {
            let Some(link) = self.peer_links(peer.0).nth(place).copied() else { break };
            if link.is_of(rail) {
                silent = Some(Endpoint(link.endpoint));
            } else if link.suspended == 0
                && let Some(other) = self.rails.rail_mut(link.rail as usize)
            {
                heard |= other.answered_since(Endpoint(link.endpoint), due);
            }
        }
        let given_up = silent
            .filter(|_| heard)
            .is_some_and(|endpoint| self.rails.rail_mut(rail).is_some_and(|rail| rail.give_up(endpoint, GiveUp::Link)));
        if given_up {
            self.link_down(rail, peer, Lost::TimedOut);
        }
        given_up
    }

    /// Handles the report of a rail that its link to a peer works again.
    pub(in crate::pml) fn link_up(&mut self, rail: usize, peer: Peer) {
        let was_down = |link: &PeerLink| link.is_of(rail) && link.suspended & DOWN != 0;
        if self.has_other_rails() && self.peer_links(peer.0).any(was_down) {
            self.counters.links_up = self.counters.links_up.wrapping_add(1);
            self.set_suspended(peer.0, rail, DOWN, false);
        }
    }
}
