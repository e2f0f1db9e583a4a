//! Adding and deleting peers, and closing the rail.

use std::os::fd::OwnedFd;

use towline_core::rail::{Endpoint, Peer, Unreachable};

use super::incoming::Incoming;
use super::outgoing::Outgoing;
use super::peer::{PeerState, PeerStatus};
use super::ring_pair::RingPair;
use super::state::{NO_RING, Rail};
use crate::card::Card;
use crate::error::OpenError;
use crate::rma::PeerRegions;
use crate::segment::control::ControlSegment;
use crate::segment::layout::doorbell_words;
use crate::single_copy::expose::Exposure;

impl Rail {
    /// Adds a peer by its card.
    pub(super) fn add(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        let card = Card::decode(card)?;
        if card.host != self.identity.card.host {
            return Err(Unreachable::OtherHost);
        }
        if card.job != self.identity.card.job || card.user != self.identity.card.user {
            log::warn!("rank {} belongs to another job or another user", card.rank);
            return Err(Unreachable::System);
        }
        let known = *self.endpoints.get(card.rank as usize).ok_or(Unreachable::BadCard)?;
        if let Some(endpoint) = known.checked_sub(1) {
            if self
                .peers
                .get(endpoint as usize)
                .is_some_and(|old| old.nonce == card.nonce && old.status == PeerStatus::Deleted)
            {
                return Ok(self.add_again(endpoint, peer));
            }
            self.forget(endpoint);
        }
        let (control, pidfd) = self.open_control(&card)?;
        let needs_fence = !(self.waiting.has_membarrier && control.has_barrier());
        let state = PeerState {
            rank: card.rank,
            peer,
            status: PeerStatus::Connected,
            nonce: card.nonce,
            process: card.process,
            control: Some(control),
            pidfd,
            pipe: None,
            is_to_be_woken: false,
            needs_fence,
            over_lock_limit: false,
            regions: PeerRegions::default(),
        };
        let vacant = self.peers.iter().position(|peer| peer.status == PeerStatus::Vacant);
        let endpoint = match vacant {
            Some(endpoint) => {
                self.peers[endpoint] = state;
                endpoint
            }
            None => {
                self.peers.push(state);
                self.rings.extend([RingPair::none(), RingPair::none()]);
                // Lists never grow on the message path.
                self.schedule.active.reserve(self.rings.len());
                self.schedule.quiet.reserve(self.rings.len());
                self.peers.len() - 1
            }
        } as u32;
        if let Some(entry) = self.endpoints.get_mut(card.rank as usize) {
            *entry = endpoint + 1;
        }
        // A departure from an earlier process of this rank, or from an earlier use of the pair, is over.
        self.control.return_to(card.rank);
        self.poll_peer(endpoint, peer);
        Ok(Endpoint(endpoint))
    }

    /// Maps a peer's control segment, and gets a descriptor for its process.
    fn open_control(&self, card: &Card) -> Result<(ControlSegment, Option<OwnedFd>), Unreachable> {
        let path = self.identity.names.control(card.rank);
        let control = ControlSegment::open(&path, self.identity.card.rank).map_err(|error| {
            log::warn!("rank {} cannot be added: {error}", card.rank);
            match error {
                OpenError::Malformed(_) => Unreachable::BadCard,
                _ => Unreachable::System,
            }
        })?;
        if control.nonce() != card.nonce || control.owner() != card.process {
            log::warn!("{} does not belong to the process whose card was given for rank {}", path.display(), card.rank);
            return Err(Unreachable::BadCard);
        }
        let pidfd = self.open_pidfd(&card.process)?;
        if pidfd.is_none() && self.can_watch(&card.process) {
            log::warn!(
                "process {} has no pidfd here, so its end is noticed by its process id: if descriptors ran out, raise ulimit -n",
                card.process.pid
            );
        }
        Ok((control, pidfd))
    }

    /// Adds a deleted peer again. Its rings are still there; the frames that came in between are dropped.
    fn add_again(&mut self, endpoint: u32, peer: Peer) -> Endpoint {
        self.discard(endpoint);
        if let Some(state) = self.peers.get_mut(endpoint as usize) {
            state.status = PeerStatus::Connected;
            state.peer = peer;
            self.control.return_to(state.rank);
        }
        let limits = [self.config.eager_limit_bytes, self.config.bulk_limit_bytes];
        for (class, limit) in limits.into_iter().enumerate() {
            if let Some(outgoing) = self.rings.get_mut(endpoint as usize * 2 + class).map(|ring| &mut ring.outgoing)
                && outgoing.exists()
            {
                outgoing.len_bound = limit + 1;
            }
        }
        self.poll_peer(endpoint, peer);
        Endpoint(endpoint)
    }

    /// Begins to poll a peer's rings, and maps those that it announced before it was added.
    fn poll_peer(&mut self, endpoint: u32, peer: Peer) {
        for ring in [endpoint * 2, endpoint * 2 + 1] {
            if let Some(incoming) = self.rings.get_mut(ring as usize).map(|ring| &mut ring.incoming)
                && incoming.exists()
            {
                incoming.peer = peer;
                self.schedule.active.push(ring);
            }
        }
        self.map_announced();
    }

    /// Deletes a peer.
    pub(super) fn delete(&mut self, endpoint: Endpoint) {
        let Some(peer) = self.peers.get_mut(endpoint.0 as usize) else { return };
        let status = peer.status;
        if matches!(status, PeerStatus::Deleted | PeerStatus::Vacant) {
            return;
        }
        if status.is_to_be_reported() {
            self.to_report -= 1;
        }
        // A peer that was left may not have mapped a ring yet that has frames for it.
        if !matches!(status, PeerStatus::Connected | PeerStatus::Left { .. }) {
            peer.status = PeerStatus::LossReported;
            return self.forget(endpoint.0);
        }
        peer.status = PeerStatus::Deleted;
        self.close_rings(endpoint.0);
        self.discard(endpoint.0);
    }

    /// Stops sending to a peer, and stops polling its rings.
    pub(super) fn close_rings(&mut self, endpoint: u32) {
        if let Some(peer) = self.peers.get_mut(endpoint as usize) {
            peer.regions = PeerRegions::default();
        }
        for ring in [endpoint * 2, endpoint * 2 + 1] {
            if let Some(outgoing) = self.rings.get_mut(ring as usize).map(|ring| &mut ring.outgoing) {
                outgoing.len_bound = 0;
                // The peer must not read the exposed memory once its loss is reported, or once the memory has other content.
                if let Some(exposure) = &mut outgoing.exposure {
                    exposure.revoke();
                }
            }
            self.schedule.active.retain(|active| *active != ring);
            self.schedule.fast_ring = NO_RING;
            self.schedule.quiet.retain(|quiet| *quiet != ring);
        }
    }

    /// Drops the frames of a peer, those in its rings and those that the engine holds.
    fn discard(&mut self, endpoint: u32) {
        for ring in [endpoint * 2, endpoint * 2 + 1] {
            self.held.remove_ring(ring);
            let Some(incoming) = self.rings.get_mut(ring as usize).map(|ring| &mut ring.incoming) else { continue };
            incoming.held = 0;
            while let Some(pending) = incoming.receiver.peek(&incoming.slots) {
                if incoming.receiver.take(pending).is_err() {
                    break;
                }
            }
            incoming.receiver.return_credit(&incoming.slots, incoming.receiver.position());
        }
    }

    /// Frees all that is kept for a peer.
    fn forget(&mut self, endpoint: u32) {
        let rank = self.rank_of(endpoint);
        self.close_rings(endpoint);
        for ring in [endpoint * 2, endpoint * 2 + 1] {
            self.held.remove_ring(ring);
            if let Some(RingPair { incoming, outgoing }) = self.rings.get_mut(ring as usize) {
                if outgoing.exists() {
                    // Usually removed already: the peer removes it when it maps the ring.
                    let _ = std::fs::remove_file(self.identity.names.ring(
                        self.identity.card.rank,
                        rank,
                        (ring & 1) as usize,
                    ));
                }
                self.ring_locks.held -= u32::from(outgoing.exposure.as_ref().is_some_and(Exposure::is_locked));
                (*outgoing, *incoming) = (Outgoing::none(), Incoming::none());
            }
        }
        let Some(peer) = self.peers.get_mut(endpoint as usize) else { return };
        if peer.status.is_to_be_reported() {
            self.to_report = self.to_report.saturating_sub(1);
        }
        (peer.status, peer.control, peer.pidfd, peer.pipe) = (PeerStatus::Vacant, None, None, None);
        if let Some(entry) = self.endpoints.get_mut(peer.rank as usize) {
            *entry = 0;
        }
    }
}

impl Rail {
    /// Makes the end of this rail a failure for its peers, as if this thread panicked.
    pub fn end_as_failure(&mut self) {
        self.fails_at_end = true;
    }
}

impl Drop for Rail {
    fn drop(&mut self) {
        self.control.close(!self.fails_at_end && !std::thread::panicking());
        // Files of rings that were announced to us and never mapped.
        self.take_doorbell_bits();
        for bit in 0..doorbell_words(self.config.ranks) * 64 {
            if self.doorbell.announced.get(bit / 64).is_some_and(|word| word & 1 << (bit % 64) != 0) {
                let _ =
                    std::fs::remove_file(self.identity.names.ring((bit / 2) as u32, self.identity.card.rank, bit % 2));
            }
        }
        for endpoint in 0..self.peers.len() as u32 {
            self.wake(endpoint);
            // Files of our rings whose receiver will not map them any more.
            let Some(peer) = self.peers.get(endpoint as usize) else { continue };
            let gone = peer.status == PeerStatus::LossReported
                || peer.control.as_ref().and_then(ControlSegment::closed).is_some();
            for class in 0..2 {
                let outgoing = self.rings.get(endpoint as usize * 2 + class).map(|ring| &ring.outgoing);
                if gone && outgoing.is_some_and(Outgoing::exists) {
                    let _ = std::fs::remove_file(self.identity.names.ring(self.identity.card.rank, peer.rank, class));
                }
            }
        }
        let _ = std::fs::remove_file(self.identity.names.control(self.identity.card.rank));
        if self.waiting.pipe.is_some() {
            let _ = std::fs::remove_file(self.identity.names.pipe(self.identity.card.rank));
        }
    }
}
