//! Links of a bundle that go down, fall silent and come back, and the frames that migrate from them.

use super::entries::{PeerState, bit, has};
use super::state::Bundle;
use crate::rail::failover::resend;
use crate::rail::{Endpoint, Event, FullRail, GiveUp, Lost, Peer, Sent, UnackedFrame};
use crate::time::Instant;

impl<R: FullRail, L: AsRef<[R]> + AsMut<[R]>> Bundle<'_, R, L> {
    /// A peer that is not lost.
    pub(super) fn peer(&self, at: u32) -> Option<PeerState> {
        self.peers.at(at).filter(|state| !state.lost).copied()
    }

    /// Loses a peer: deletes it from the links. Its slot stays until the user deletes it.
    pub(super) fn lose(&mut self, at: u32, why: Lost) -> Option<Event> {
        let state = self.peer(at)?;
        self.leave(at, &state, why != Lost::Closed);
        if let Some(state) = self.peers.at_mut(at) {
            (state.lost, state.added, state.migrates) = (true, 0, false);
        }
        Some(Event::Lost(Peer(state.peer), why))
    }

    /// A link to a peer is down. Returns the loss of the peer, if this was the last link.
    pub(super) fn link_down(&mut self, link: usize, at: u32, why: Lost) -> Option<Event> {
        let state = self.peer(at).filter(|state| state.is_usable(link))?;
        // After a peer's goodbye, no frame will come by a link that is not connected yet.
        let goes_on = |other: usize| {
            let connected = || self.link(other).is_some_and(|rail| rail.is_connected(self.endpoint(at, other)));
            other != link && state.is_usable(other) && (why != Lost::Closed || connected())
        };
        if !(0..self.count()).any(goes_on) {
            return self.lose(at, why);
        }
        self.counters.links_down = self.counters.links_down.wrapping_add(1);
        if let Some(state) = self.peers.at_mut(at) {
            state.down |= bit(link);
            if !state.migrates {
                state.migrates = true;
                self.migrating.push(at);
            }
        }
        // A link that was not used yet, or not for long, does not know whether the peer is alive.
        let now = Some(self.now);
        self.for_other_links(link, at, |rail, endpoint| {
            rail.answered_since(endpoint, now);
        });
        None
    }

    /// A link that was down works again. It sends those of its frames that have not migrated.
    pub(super) fn link_up(&mut self, link: usize, at: u32) {
        if let Some(state) = self.peers.at_mut(at)
            && has(state.down, link)
        {
            state.down &= !bit(link);
            self.counters.links_up = self.counters.links_up.wrapping_add(1);
        }
    }

    /// A link receives nothing from a peer that should have answered by the time `due`. If another link proves that the peer is
    /// alive, the silent link has failed.
    pub(super) fn link_silent(&mut self, link: usize, at: u32, due: Option<Instant>) -> Option<Event> {
        self.peer(at).filter(|state| state.is_usable(link))?;
        let mut heard = false;
        self.for_other_links(link, at, |rail, endpoint| heard |= rail.answered_since(endpoint, due));
        let endpoint = self.endpoint(at, link);
        if heard && self.link_mut(link)?.give_up(endpoint, GiveUp::Link) {
            return self.link_down(link, at, Lost::TimedOut);
        }
        None
    }

    /// Calls a function for each link in use to a peer but one.
    fn for_other_links(&mut self, link: usize, at: u32, mut call: impl FnMut(&mut R, Endpoint)) {
        let Some(state) = self.peer(at) else { return };
        for other in (0..self.count()).filter(|other| *other != link && state.is_usable(*other)) {
            let endpoint = self.endpoint(at, other);
            if let Some(rail) = self.link_mut(other) {
                call(rail, endpoint);
            }
        }
    }

    /// Has other links send the frames of links that are down, as they have room. Returns the end of a send that nobody else
    /// reports, if there is one. Then there may be more.
    pub(super) fn migrate_frames(&mut self) -> Option<Event> {
        for _ in 0..self.migrating.len() {
            let at = self.migrating.first()?;
            let (event, over) = self.migrate_from(at);
            if event.is_some() {
                self.more = true;
                return event;
            }
            self.migrating.pop();
            if !over {
                self.migrating.push(at);
            } else if let Some(state) = self.peers.at_mut(at) {
                state.migrates = false;
            }
        }
        None
    }

    /// The same for one peer. Also returns whether no frame is left.
    fn migrate_from(&mut self, at: u32) -> (Option<Event>, bool) {
        let Some(state) = self.peer(at) else { return (None, true) };
        for link in (0..self.count()).filter(|link| has(state.added & state.down, *link)) {
            let endpoint = self.endpoint(at, link);
            while let Some(unacked) = self.link(link).and_then(|rail| rail.next_unacked(endpoint)) {
                let Some(sent) = self.send_unacked(at, &unacked) else { return (None, false) };
                if let Some(rail) = self.link_mut(link) {
                    rail.migrated(endpoint, unacked.origin);
                }
                self.counters.frames_migrated = self.counters.frames_migrated.wrapping_add(1);
                if let Some(cookie) = unacked.cookie.filter(|_| sent != Sent::InPlace) {
                    return (Some(Event::Sent(cookie)), false);
                }
            }
        }
        (None, true)
    }

    /// Sends an unacknowledged frame by a link that has room.
    fn send_unacked(&mut self, at: u32, unacked: &UnackedFrame) -> Option<Sent> {
        // SAFETY: the caller has just got the frame from the link that is down. That link is not called, since it is not in use.
        self.try_links(at, unacked.shape.lane, |rail, endpoint| unsafe { resend(rail, endpoint, unacked) }).ok()
    }
}
