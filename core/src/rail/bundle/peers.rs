//! The peers of a bundle, and which links reach them.

use zerocopy::FromZeros;

use super::card::Cards;
use super::entries::{PeerState, bit, has};
use super::state::Bundle;
use crate::rail::{Endpoint, FullRail, GiveUp, Peer, Unreachable};

impl<R: FullRail, L: AsRef<[R]> + AsMut<[R]>> Bundle<'_, R, L> {
    /// A link's endpoint of a peer.
    pub(super) fn endpoint(&self, at: u32, link: usize) -> Endpoint {
        let place = (at as usize).wrapping_mul(self.count()).wrapping_add(link);
        Endpoint(self.endpoints.get(place).copied().unwrap_or(u32::MAX))
    }

    fn set_endpoint(&mut self, at: u32, link: usize, endpoint: Endpoint) {
        let place = (at as usize).wrapping_mul(self.count()).wrapping_add(link);
        if let Some(place) = self.endpoints.get_mut(place) {
            *place = endpoint.0;
        }
    }

    pub(super) fn add(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        let cards = Cards::read(card)?;
        let state = PeerState { peer: peer.0, ..PeerState::new_zeroed() };
        let handle = self.peers.take(state).map_err(|_| Unreachable::Full)?;
        let at = handle.slot();
        let (mut added, mut failure) = (0, None);
        for (link, card) in cards.enumerate().take(self.count()) {
            let Some(rail) = self.link_mut(link) else { break };
            match rail.add_peer(Peer(at), card) {
                Ok(endpoint) => {
                    self.set_endpoint(at, link, endpoint);
                    added |= bit(link);
                }
                // A network that only one side has concerns one link. A card that is not understood concerns the whole peer.
                Err(why @ (Unreachable::BadCard | Unreachable::Version)) => {
                    failure = Some(why);
                    self.delete_from(at, added, None);
                    added = 0;
                    break;
                }
                Err(why) => failure = failure.or(Some(why)),
            }
        }
        if added == 0 {
            self.peers.free(handle);
            return Err(failure.unwrap_or(Unreachable::BadCard));
        }
        if let Some(state) = self.peers.at_mut(at) {
            state.added = added;
        }
        Ok(Endpoint(at))
    }

    /// Deletes a peer. `give_up`: without goodbyes.
    pub(super) fn delete(&mut self, at: u32, give_up: bool) {
        let Some((handle, state)) = self.peers.handle(at).zip(self.peers.at(at).copied()) else { return };
        self.leave(at, &state, give_up);
        self.peers.free(handle);
    }

    /// Deletes a peer from the links, and forgets its frames. The peer keeps its slot.
    pub(super) fn leave(&mut self, at: u32, state: &PeerState, give_up: bool) {
        self.forget_frames(at);
        if state.migrates {
            self.migrating.retain(|other| other != at);
        }
        self.delete_from(at, state.added, give_up.then_some(GiveUp::Peer));
    }

    fn delete_from(&mut self, at: u32, links: u64, give_up: Option<GiveUp>) {
        for link in (0..self.count()).filter(|link| has(links, *link)) {
            let endpoint = self.endpoint(at, link);
            let Some(rail) = self.link_mut(link) else { continue };
            match give_up {
                Some(what) => drop(rail.give_up(endpoint, what)),
                None => rail.del_peer(endpoint),
            }
        }
    }
}
