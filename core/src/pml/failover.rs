//! Links that go down and come back, and rails that are disabled: what is set aside, and who carries its frames.
//!
//! A link that its rail reports as down takes nothing new. What the peer has not acknowledged of it are its orphans: other
//! links carry them, as they have room, named as the link had numbered them, so that the other side can tell which of
//! them had arrived before. There each is claimed: all links are asked what they know of it, and one that was in the middle
//! of writing its body to memory hands that over. So every frame is taken once, whatever came by two ways, and floors above
//! notice nothing; messages come in their order by number, as always. A link that comes back sends again by itself what
//! has not been moved. A peer is lost with its last link.
//!
//! A disabled rail takes nothing new either, but what it has been given it delivers, and it still brings what the peer
//! sends. With no link in use, messages wait for one.

use core::fmt;

use zerocopy::FromZeros;

use super::engine::{Pml, Rails};
use super::peer::{DOWN, LINKED, Link, OFF, ORPHANED, Standing};
use super::request::{List, Phase};
use super::send::charge;
use super::stall::HEARD;
use crate::convertor::Span;
use crate::error::Blame;
use crate::rail::{
    Claim, Cookie, Delivery, Endpoint, Failover, Frame, GiveUp, Lane, Liveness, Lost, Origin, Peer, Rail, Sent,
    UnackedFrame, tags,
};
use crate::time::Instant;
use crate::{ptl, wire};

/// Why a rail was neither enabled nor disabled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum EnableError {
    /// There is no rail of this index.
    NoRail(usize),
}

impl EnableError {
    /// Who has to act.
    pub const fn blame(self) -> Blame {
        Blame::Caller
    }
}

impl fmt::Display for EnableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRail(index) => {
                write!(f, "there is no rail {index}: rails count from 0, in the order they were given")
            }
        }
    }
}

impl core::error::Error for EnableError {}

/// Whether a rail's bit is set.
pub(super) fn is_disabled(bits: &[u32; 8], rail: usize) -> bool {
    bits.get(rail / 32).is_some_and(|word| word & bit(rail) != 0)
}

const fn bit(rail: usize) -> u32 {
    1 << (rail % 32)
}

/// Links in use first, of these the lowest latency, then the lowest rail; places without a link last. Links are few, and
/// the library's sorts can panic.
fn sort(row: &mut [Link]) {
    let key = |link: &Link| (link.bandwidth == 0, link.aside != 0, link.latency, link.rail);
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

impl<R: Rails> Pml<'_, R> {
    /// Enables or disables a rail, for all peers (the contract's `MCA_PTL_ENABLE`). A disabled rail takes nothing new; what it
    /// was given before it still delivers, and what arrives by it is taken. Other rails go on with all messages; where a peer
    /// has none, they wait until one is enabled again. Rails are enabled at first.
    ///
    /// # Errors
    /// [`EnableError`]; nothing has changed then.
    pub fn enable_rail(&mut self, index: usize, on: bool) -> Result<(), EnableError> {
        let word = self.disabled.get_mut(index / 32).filter(|_| index < self.rails.count());
        let word = word.ok_or(EnableError::NoRail(index))?;
        *word = if on { *word & !bit(index) } else { *word | bit(index) };
        for peer in 0..self.peers.len() as u32 {
            if self.peers.get(peer as usize).is_some_and(|state| state.standing == Standing::Up) {
                self.set_aside(peer, index, OFF, !on);
            }
        }
        Ok(())
    }

    /// Whether a rail takes what is new. `false` also where there is no such rail.
    pub fn is_enabled(&self, index: usize) -> bool {
        index < self.rails.count() && !is_disabled(&self.disabled, index)
    }

    /// The links of a peer, those set aside among them.
    pub(super) fn row(&self, peer: u32) -> impl Iterator<Item = &Link> {
        let count = self.rails.count();
        let start = (peer as usize).wrapping_mul(count);
        let row = self.links.get(start..start.wrapping_add(count)).unwrap_or_default();
        row.iter().take_while(|link| link.bandwidth != 0)
    }

    fn row_mut(&mut self, peer: u32) -> &mut [Link] {
        let count = self.rails.count();
        let start = (peer as usize).wrapping_mul(count);
        self.links.get_mut(start..start.wrapping_add(count)).unwrap_or_default()
    }

    /// Puts a peer's links into their order, and counts those in use.
    pub(super) fn arrange(&mut self, peer: u32) {
        sort(self.row_mut(peer));
        let used = || self.row(peer).filter(|link| link.aside == 0);
        let none = Link { rail: u8::MAX, ..Link::new_zeroed() };
        let first = used().next().copied().unwrap_or(none);
        let (links, firsts) = (used().count(), used().filter(|link| link.latency == first.latency).count());
        if let Some(state) = self.peers.get_mut(peer as usize) {
            (state.links, state.firsts, state.turn) = (links as u8, firsts as u8, 0);
            (state.rail, state.endpoint) = (first.rail, first.endpoint);
        }
    }

    /// Sets a link aside for the reason that `mark` is, or takes that back.
    fn set_aside(&mut self, peer: u32, rail: usize, mark: u8, aside: bool) {
        // Who comes back has not saved up the bytes that others carried meanwhile.
        let least = self.row(peer).filter(|link| link.aside == 0).map(|link| link.share).min();
        let Some(link) = self.row_mut(peer).iter_mut().find(|link| link.is_of(rail)) else { return };
        if aside {
            link.aside |= mark;
        } else {
            link.aside &= !mark;
            link.share = link.share.max(least.unwrap_or(0));
        }
        self.arrange(peer);
        self.put_to_work(peer);
    }

    /// Has all rails forget a peer, which is lost or has come to its end in good order.
    pub(super) fn forget_links(&mut self, peer: u32, lost: bool) {
        for place in 0..self.rails.count() {
            let Some(link) = self.row(peer).nth(place).copied() else { break };
            if let Some(rail) = self.rails.rail_mut(link.rail as usize) {
                if lost {
                    rail.give_up(Endpoint(link.endpoint), GiveUp::Peer);
                } else {
                    rail.del_peer(Endpoint(link.endpoint));
                }
            }
        }
        self.row_mut(peer).fill_with(Link::new_zeroed);
    }

    /// Bytes of the longest fragment's body that each of the peer's rails takes, where any may have to carry it.
    pub(super) fn longest_fragment(&self, peer: u32) -> u64 {
        if !self.peers.get(peer as usize).is_some_and(|state| state.has(LINKED)) {
            return u64::MAX;
        }
        let rails = self.row(peer).filter_map(|link| self.rails.rail(link.rail as usize));
        let longest = rails.map(|rail| rail.attributes().max_send_size).min().unwrap_or(u32::MAX);
        u64::from(longest.saturating_sub(size_of::<wire::Fragment>() as u32))
    }

    /// A rail has reported its link to a peer down.
    pub(super) fn link_down(&mut self, rail: usize, peer: Peer, why: Lost) {
        let Some(state) = self.peers.get(peer.0 as usize) else { return };
        if state.standing != Standing::Up || !self.row(peer.0).any(|link| link.is_of(rail)) {
            return;
        }
        // Of who has said good-bye, nothing comes by another link that has not met it yet.
        let ended = |link: &Link| {
            let rail = self.rails.rail(link.rail as usize).filter(|_| why == Lost::Closed);
            rail.is_some_and(|rail| !rail.is_connected(Endpoint(link.endpoint)))
        };
        let alone = self.row(peer.0).all(|link| link.is_of(rail) || link.aside & DOWN != 0 || ended(link));
        if alone || !state.has(LINKED) {
            return self.lost(peer, why);
        }
        warn!("peer {}: rail {} is down: {}", peer.0, rail, why as u8);
        self.counters.links_down = self.counters.links_down.wrapping_add(1);
        let link = self.row(peer.0).find(|link| link.is_of(rail)).map(|link| Endpoint(link.endpoint));
        let orphan = link.and_then(|link| self.rails.rail(rail)?.next_unacked(link));
        self.set_aside(peer.0, rail, DOWN, true);
        self.lose_device(rail, peer);
        self.lose_pieces(rail, peer);
        if let Some(state) = self.peers.get_mut(peer.0 as usize) {
            state.set(ORPHANED);
            if orphan.is_some() {
                state.signs.set(HEARD); // what it was told by this link it may not have heard
            }
        }
        self.orphans = true;
    }

    /// A rail hears nothing of a peer but its host, and was to hear of it by a time. If another link hears the peer, it is the
    /// link that is dead, and its frames go on by the other one. If none does, the peer may be stopped, and is not lost. Tells
    /// whether the link was given up.
    pub(super) fn link_silent(&mut self, rail: usize, peer: Peer, due: Option<Instant>) -> bool {
        if self.peers.get(peer.0 as usize).is_none_or(|state| state.standing != Standing::Up || !state.has(LINKED)) {
            return false;
        }
        let (mut silent, mut heard) = (None, false);
        for place in 0..self.rails.count() {
            let Some(link) = self.row(peer.0).nth(place).copied() else { break };
            if link.is_of(rail) {
                silent = Some(Endpoint(link.endpoint));
            } else if link.aside == 0
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

    /// A rail has reported that its link to a peer is in order again.
    pub(super) fn link_up(&mut self, rail: usize, peer: Peer) {
        if self.row(peer.0).any(|link| link.is_of(rail) && link.aside & DOWN != 0) {
            self.counters.links_up = self.counters.links_up.wrapping_add(1);
            self.set_aside(peer.0, rail, DOWN, false);
        }
    }

    /// Goes through the peers whose links went down.
    #[cold]
    pub(super) fn run_orphans(&mut self) {
        self.orphans = false;
        let mut next = self.work_head;
        while let Some(index) = next.checked_sub(1) {
            let Some(peer) = self.peers.get(index as usize) else { return };
            next = peer.work_next;
            if peer.standing == Standing::Up && peer.has(ORPHANED) {
                self.move_orphans(index);
            }
            self.orphans |= self.peers.get(index as usize).is_some_and(|peer| peer.has(ORPHANED));
        }
    }

    /// Has links in use carry what links that are down could not deliver, as far as they have room.
    pub(super) fn move_orphans(&mut self, peer: u32) {
        for place in 0..self.rails.count() {
            let Some(link) = self.row(peer).nth(place).copied() else { break };
            if link.aside & DOWN == 0 {
                continue;
            }
            let endpoint = Endpoint(link.endpoint);
            while let Some(orphan) = self.rails.rail(link.rail as usize).and_then(|rail| rail.next_unacked(endpoint)) {
                let Some(sent) = self.carry(peer, &orphan) else {
                    self.counters.busy = self.counters.busy.wrapping_add(1);
                    return;
                };
                if let Some(rail) = self.rails.rail_mut(link.rail as usize) {
                    rail.migrated(endpoint, orphan.origin);
                }
                self.counters.frames_moved = self.counters.frames_moved.wrapping_add(1);
                if let Some(cookie) = orphan.cookie.filter(|_| sent != Sent::InPlace) {
                    self.body_sent(cookie);
                    self.ended = self.ended.wrapping_add(1);
                }
            }
        }
        // A link that nobody has used yet does not know whether the peer is there, and what is told by it finds out. Else a
        // peer that died would be thought alive for the sake of a link that was never tried.
        if self.peers.get(peer as usize).is_some_and(|state| state.links != 0) {
            if self.control(peer, wire::Credit::new()).is_err() {
                return;
            }
            self.counters.credits_sent = self.counters.credits_sent.wrapping_add(1);
        }
        if let Some(state) = self.peers.get_mut(peer as usize) {
            state.clear(ORPHANED);
        }
    }

    /// Sends an orphan by the first link in use that takes it: the one that has carried least for its bandwidth first where
    /// it is bulk, else the quickest. `None` where none has room.
    fn carry(&mut self, peer: u32, orphan: &UnackedFrame) -> Option<Sent> {
        let links = self.peers.get(peer as usize)?.links as usize;
        let bulk = orphan.shape.lane == Lane::Bulk;
        let header = orphan.header.get(..orphan.shape.header as usize)?;
        let mut tried = None;
        loop {
            let order = |(place, link): (usize, &Link)| (if bulk { link.share } else { 0 }, place);
            let places = self.row(peer).take(links).enumerate().map(order);
            let next = places.filter(|place| tried.is_none_or(|tried| *place > tried)).min()?;
            let link = *self.row(peer).nth(next.1)?;
            let rail = self.rails.rail_mut(link.rail as usize)?;
            // SAFETY: the body is readable until the frame is migrated, which follows; where it is sent in place, it is the
            // user's, who leaves it as it is until the request of the cookie is done. Without a cookie it is copied.
            match unsafe {
                rail.send_migrated(
                    Endpoint(link.endpoint),
                    orphan.origin,
                    orphan.shape,
                    header,
                    orphan.body,
                    orphan.cookie,
                )
            } {
                Ok(sent) => {
                    let round = self.round;
                    if bulk {
                        charge(self.row_mut(peer), next.1, round, orphan.body.len());
                    }
                    return Some(sent);
                }
                Err(_) => tried = Some(next),
            }
        }
    }

    /// A frame that was given to another link of the sender first.
    pub(super) fn arrive_moved(&mut self, rail: usize, origin: Origin, frame: &Frame) {
        match self.claim_moved(frame.from, origin) {
            Some(Claim::New) if frame.tag == ptl::TAG => return self.frame(rail, true, frame),
            Some(Claim::New) if frame.tag == tags::BTL_BASE => return self.one_sided_frame(rail, frame),
            Some(Claim::New) => self.counters.foreign = self.counters.foreign.wrapping_add(1),
            Some(Claim::Awaited { skip, sink, cookie }) => return self.resume(rail, frame, skip, sink, cookie),
            Some(Claim::Duplicate) => self.counters.doubles = self.counters.doubles.wrapping_add(1),
            None => self.counters.stale = self.counters.stale.wrapping_add(1),
        }
        self.drop_frame(rail, frame);
    }

    /// Asks all links to a peer, since each may know something: the one that the frame was given to first whether it has come,
    /// any other that was to carry it whether it has written a part of it.
    fn claim_moved(&mut self, from: Peer, origin: Origin) -> Option<Claim> {
        let mut verdict = None;
        for place in 0..self.rails.count() {
            let Some(link) = self.row(from.0).nth(place).copied() else { break };
            let Some(rail) = self.rails.rail_mut(link.rail as usize) else { continue };
            match rail.claim(Endpoint(link.endpoint), origin) {
                Some(Claim::Awaited { skip, sink, cookie }) => verdict = Some(Claim::Awaited { skip, sink, cookie }),
                claim if verdict.is_none() => verdict = claim,
                _ => {}
            }
        }
        verdict
    }

    /// Delivers a frame to where another link has begun to.
    fn resume(&mut self, rail: usize, frame: &Frame, skip: usize, sink: Span, cookie: Cookie) {
        let delivery = if frame.is_whole() {
            let bytes = frame.head().get(skip..).unwrap_or_default();
            // SAFETY: who asked for the delivery vouches for the sink until it is told that it is over.
            unsafe { sink.unpack(bytes.as_ptr(), bytes.len()) };
            Delivery::Done
        } else if let Some(rail) = self.rails.rail_mut(rail) {
            // SAFETY: as above; the link that gave the sink away does not touch it any more.
            unsafe { rail.deliver(frame.id, skip, sink, cookie) }
        } else {
            return;
        };
        if delivery == Delivery::Done {
            self.body_delivered(cookie);
        }
    }

    /// Whether all active requests wait for a link to be enabled.
    pub(super) fn active_is_waiting(&self) -> bool {
        let mut next = self.active.first();
        while let Some(slot) = next {
            next = List::after(&self.requests, slot);
            let waits = self.requests.at(slot).is_none_or(|state| {
                matches!(state.phase, Phase::Streaming | Phase::Responding | Phase::Receiving)
                    && self.peers.get(state.peer as usize).is_none_or(|peer| peer.links == 0)
            });
            if !waits {
                return false;
            }
        }
        true
    }
}
