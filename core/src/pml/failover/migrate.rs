//! Migrated frames: other links carry the frames of a link that is down, and the other side claims each frame once.

use crate::convertor::Span;
use crate::pml::engine::Pml;
use crate::pml::peers::flags::MIGRATING;
use crate::pml::peers::link::{DOWN, PeerLink};
use crate::pml::peers::state::PeerStatus;
use crate::pml::rails::Rails;
use crate::pml::send::schedule::charge;
use crate::rail::failover::{deliver_rest, resend, weigh};
use crate::rail::{Claim, Cookie, Delivery, Endpoint, Failover, Frame, Lane, Origin, Peer, Sent, UnackedFrame, tags};
use crate::{ptl, wire};

impl<R: Rails> Pml<'_, R> {
    /// Migrates frames of all peers that have a link that is down.
    #[cold]
    pub(in crate::pml) fn migrate_frames(&mut self) {
        self.migrating = false;
        let mut next = self.work.first();
        while let Some(index) = next.get() {
            let Some(peer) = self.peers.get(index as usize) else { return };
            next = peer.work_next;
            if peer.status == PeerStatus::Up && peer.has(MIGRATING) {
                self.migrate_from_peer_links(index);
            }
            self.migrating |= self.peers.get(index as usize).is_some_and(|peer| peer.has(MIGRATING));
        }
    }

    /// Sends the undelivered frames of a peer's links that are down by the links in use, as far as these have room.
    pub(in crate::pml) fn migrate_from_peer_links(&mut self, peer: u32) {
        for place in 0..self.rails.count() {
            let Some(link) = self.peer_links(peer).nth(place).copied() else { break };
            if link.suspended & DOWN == 0 {
                continue;
            }
            let endpoint = Endpoint(link.endpoint);
            while let Some(unacked) = self.rails.rail(link.rail as usize).and_then(|rail| rail.next_unacked(endpoint)) {
                let Some(sent) = self.resend(peer, &unacked) else {
                    self.counters.busy = self.counters.busy.wrapping_add(1);
                    return;
                };
                if let Some(rail) = self.rails.rail_mut(link.rail as usize) {
                    rail.migrated(endpoint, unacked.origin);
                }
                self.counters.frames_migrated = self.counters.frames_migrated.wrapping_add(1);
                if let Some(cookie) = unacked.cookie.filter(|_| sent != Sent::InPlace) {
                    self.body_sent(cookie);
                    self.ended = self.ended.wrapping_add(1);
                }
            }
        }
        // A link that was not used yet does not know whether the peer is alive. So a frame is sent by it: otherwise a failed peer
        // would count as alive because of a link that was never tried.
        if self.peers.get(peer as usize).is_some_and(|state| state.route.links != 0) {
            if self.control(peer, wire::Credit::new()).is_err() {
                return;
            }
            self.counters.credits_sent = self.counters.credits_sent.wrapping_add(1);
        }
        if let Some(state) = self.peers.get_mut(peer as usize) {
            state.clear(MIGRATING);
        }
    }

    /// Sends an unacknowledged frame by a link in use that has room. For bulk, the link that has carried the least for its
    /// bandwidth is tried first; for other frames, the link with the lowest latency. `None` if no link has room.
    fn resend(&mut self, peer: u32, unacked: &UnackedFrame) -> Option<Sent> {
        let links = self.peers.get(peer as usize)?.route.links as usize;
        let bulk = unacked.shape.lane == Lane::Bulk;
        let mut tried = None;
        loop {
            let order = |(place, link): (usize, &PeerLink)| (if bulk { link.share } else { 0 }, place);
            let places = self.peer_links(peer).take(links).enumerate().map(order);
            let next = places.filter(|place| tried.is_none_or(|tried| *place > tried)).min()?;
            let link = *self.peer_links(peer).nth(next.1)?;
            let rail = self.rails.rail_mut(link.rail as usize)?;
            // SAFETY: the caller has just got the frame from its link, which is down, so it is not the link that is called here.
            match unsafe { resend(rail, Endpoint(link.endpoint), unacked) } {
                Ok(sent) => {
                    let round = self.round;
                    if bulk {
                        charge(self.peer_links_mut(peer), next.1, round, unacked.body.len());
                    }
                    return Some(sent);
                }
                Err(_) => tried = Some(next),
            }
        }
    }

    /// Handles an arriving frame that has migrated.
    pub(in crate::pml) fn arrive_migrated(&mut self, rail: usize, origin: Origin, frame: &Frame) {
        let claim = if self.has_other_rails() { self.claim_migrated(frame.from, origin) } else { None };
        match claim {
            Some(Claim::New) if frame.tag == ptl::TAG => return self.arrive(rail, true, frame),
            Some(Claim::New) if frame.tag == tags::BTL_BASE => return self.one_sided_frame(rail, frame),
            Some(Claim::New) => self.counters.unknown_tags = self.counters.unknown_tags.wrapping_add(1),
            Some(Claim::Awaited { skip, sink, cookie }) => return self.deliver_rest(rail, frame, skip, sink, cookie),
            Some(Claim::Duplicate) => self.counters.duplicates = self.counters.duplicates.wrapping_add(1),
            None => self.counters.stale = self.counters.stale.wrapping_add(1),
        }
        self.drop_frame(rail, frame);
    }

    /// Asks all links to a peer about a frame. The link that carried it first knows whether it has arrived. Any other link that
    /// carried it later knows whether it has written a part of it.
    fn claim_migrated(&mut self, from: Peer, origin: Origin) -> Option<Claim> {
        let mut verdict = None;
        for place in 0..self.rails.count() {
            let Some(link) = self.peer_links(from.0).nth(place).copied() else { break };
            let Some(rail) = self.rails.rail_mut(link.rail as usize) else { continue };
            verdict = weigh(verdict, rail.claim(Endpoint(link.endpoint), origin));
        }
        verdict
    }

    /// Delivers the part of a frame that another link has not delivered.
    fn deliver_rest(&mut self, rail: usize, frame: &Frame, skip: usize, sink: Span, cookie: Cookie) {
        let Some(rail) = self.rails.rail_mut(rail) else { return };
        // SAFETY: a link has just answered this to the claim.
        let delivery = unsafe { deliver_rest(rail, frame, skip, sink, cookie) };
        if delivery == Delivery::Done {
            self.body_delivered(cookie);
        }
    }
}
