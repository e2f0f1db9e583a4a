//! Adding a peer.

use zerocopy::FromZeros;

use crate::pml::engine::Pml;
use crate::pml::failover::enable::is_disabled;
use crate::pml::limits::params::Params;
use crate::pml::peers::credit::SendCredit;
use crate::pml::peers::flags::LINKED;
use crate::pml::peers::link::{DISABLED, PeerLink, SPARE};
use crate::pml::peers::state::{PeerState, PeerStatus};
use crate::pml::rails::Rails;
use crate::pml::requests::state::Outcome;
use crate::rail::{COPIED, Capabilities, Endpoint, LATER, MULTIRAIL, Peer, Rail, Unreachable};
use crate::wire;

impl<R: Rails> Pml<'_, R> {
    /// Adds a peer. `params` are the [parameters](Self::params) of its engine. `reach(i, rail)` adds the peer to rail `i` and
    /// returns the endpoint, or the reason why the rail is not used. So the caller selects the rails (see
    /// [`btl::selection`](crate::btl)).
    ///
    /// The rails of the lowest latency share the first fragments. All rails share the other fragments, by bandwidth. If all rails
    /// can fail over, any of them may go down and come back, and the peer is lost when the last one fails. Otherwise it is lost
    /// when the first one fails.
    ///
    /// The state of a peer that was lost is reset: its earlier messages that were not received are dropped.
    ///
    /// # Errors
    /// [`Unreachable`]: the peer is present already or its number is out of range (`Full`), its parameters cannot be read, or no
    /// rail reaches it (the reason of the last rail). Nothing has changed then.
    pub fn add_peer(
        &mut self,
        peer: Peer,
        params: &[u8],
        mut reach: impl FnMut(usize, &mut R::Rail) -> Result<crate::rail::Endpoint, Unreachable>,
    ) -> Result<(), Unreachable> {
        let params = Params::decode(params)?;
        let count = self.rails.count();
        let state = self.peers.get_mut(peer.0 as usize).ok_or(Unreachable::Full)?;
        if state.status == PeerStatus::Up {
            return Err(Unreachable::Full);
        }
        let start = (peer.0 as usize).saturating_mul(count);
        let row = self.links.get_mut(start..start.saturating_add(count)).ok_or(Unreachable::Full)?;
        row.fill(PeerLink::new_zeroed());
        let (mut links, mut why) = (0usize, Unreachable::NoCard);
        let (mut eager, mut linked) = (u32::MAX, true);
        for index in 0..count.min(if MULTIRAIL { u8::MAX as usize } else { 1 }) {
            let Some(rail) = self.rails.rail_mut(index) else { continue };
            // Only longer bodies may stay in the user's memory.
            if !LATER && u64::from(rail.attributes().max_send_size) > COPIED {
                continue;
            }
            match reach(index, rail) {
                Ok(endpoint) => {
                    let attributes = rail.attributes();
                    eager = eager.min(attributes.eager_limit);
                    linked &= attributes.capabilities.contains(Capabilities::FAILOVER_SUPPORT);
                    let link = PeerLink {
                        endpoint: endpoint.0,
                        rail: index as u8,
                        suspended: if is_disabled(&self.disabled, index) { DISABLED } else { 0 },
                        busy_in: 0,
                        bandwidth: attributes.bandwidth.max(1),
                        latency: attributes.latency,
                        share: 0,
                    };
                    if let Some(place) = row.get_mut(links) {
                        *place = link;
                        links = links.saturating_add(1);
                    }
                }
                Err(reason) => why = reason,
            }
        }
        if links == 0 {
            return Err(why);
        }
        let header = size_of::<wire::Match>() as u32;
        if state.status == PeerStatus::Lost {
            self.drop_peer(peer.0, true, Outcome::PeerFailed); // the messages that the lost peer left must not use the new credit
        }
        let state = self.peers.get_mut(peer.0 as usize).ok_or(Unreachable::Full)?;
        // Of an earlier peer with this number, the place in the work list and the counts of used credit stay.
        *state = PeerState {
            status: PeerStatus::Up,
            eager_body: eager.saturating_sub(header).min(params.unit_bytes),
            in_order: true,
            credit: SendCredit::whole(self.config.first_sequence as u32, params.envelopes, params.units),
            next_in: params.first_sequence as u32,
            seen_in: params.first_sequence as u8,
            ..state.reset()
        };
        if linked {
            state.set(LINKED);
        }
        self.begin_arrivals(peer.0);
        self.sort_links(peer.0);
        debug!("peer {}: {} links, credit {} envelopes", peer.0, links, params.envelopes);
        Ok(())
    }

    /// Adds a spare rail to a peer that was added: `endpoint` is the peer on the rail of this index. The rail carries nothing to
    /// the peer until the peer's other rails have reported that they take no more frames
    /// ([`Event::Down`](crate::rail::Event::Down)). A rail that is a spare of all its peers is not polled until then
    /// ([`Rails::polled`]). Both ends of a pair must have the same spare, and at most one.
    ///
    /// # Errors
    /// [`Unreachable::Full`]: the peer is not present, the peer uses this rail already, or there is no such rail.
    pub fn add_spare(&mut self, peer: Peer, index: usize, endpoint: Endpoint) -> Result<(), Unreachable> {
        let rail = self.rails.rail(index).ok_or(Unreachable::Full)?;
        let attributes = *rail.attributes();
        let is_used = self.peer_links(peer.0).any(|link| link.is_of(index));
        let state = self.peers.get_mut(peer.0 as usize).filter(|state| state.status == PeerStatus::Up && !is_used);
        let state = state.ok_or(Unreachable::Full)?;
        // Messages that are held back now may leave by the spare rail later.
        let eager = attributes.eager_limit.saturating_sub(size_of::<wire::Match>() as u32);
        state.eager_body = state.eager_body.min(eager);
        let link = PeerLink {
            endpoint: endpoint.0,
            rail: index as u8,
            suspended: SPARE | if is_disabled(&self.disabled, index) { DISABLED } else { 0 },
            busy_in: 0,
            bandwidth: attributes.bandwidth.max(1),
            latency: attributes.latency,
            share: 0,
        };
        let place = self.peer_links_mut(peer.0).iter_mut().find(|link| link.bandwidth == 0);
        *place.ok_or(Unreachable::Full)? = link;
        self.sort_links(peer.0);
        Ok(())
    }
}
