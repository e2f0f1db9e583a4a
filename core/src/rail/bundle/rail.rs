//! A bundle is a rail: the implementations of [`Rail`] and its extensions.

use super::entries::has;
use super::state::Bundle;
use crate::convertor::Span;
use crate::pool::Handle;
use crate::rail::{
    Attributes, Cookie, Delivery, DeviceMemory, Endpoint, Event, Failover, FastPath, FrameId, FullRail, GiveUp, Grant,
    Lane, Liveness, Peer, Rail, RequestCache, SendError, Sent, Shape, SingleCopy, Ticket, Unreachable,
};
use crate::time::Instant;

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail, L: AsRef<[R]> + AsMut<[R]>> Rail for Bundle<'_, R, L> {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn card(&self) -> &[u8] {
        self.card
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        self.add(peer, card)
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        self.delete(endpoint.0, false);
    }

    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        let (room, len, ticket) =
            self.give(to, shape, |rail, endpoint| rail.reserve(endpoint, shape).map(Grant::into_parts))?;
        // SAFETY: a link has granted the room for as long as it is not called, and it is not called while this bundle is borrowed.
        Ok(unsafe { Grant::new(room, len, ticket) })
    }

    /// The ticket is from the last grant, so it is one of the link that gave that grant.
    fn commit(&mut self, ticket: Ticket) -> Sent {
        let link = self.granted;
        self.link_mut(link).map_or(Sent::Done, |rail| rail.commit(ticket))
    }

    unsafe fn send(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        // SAFETY: passed on from the caller. If a link refuses the frame, it holds no memory.
        self.give(to, shape, |rail, endpoint| unsafe { rail.send(endpoint, shape, header, body, cookie) })
    }

    unsafe fn send_summed(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        // SAFETY: as above.
        self.give(to, shape, |rail, endpoint| unsafe { rail.send_summed(endpoint, shape, header, body, cookie) })
    }

    fn drained(&self, to: Endpoint) -> bool {
        let added = self.peers.at(to.0).map_or(0, |state| state.added);
        let mut added = (0..self.count()).filter(|link| has(added, *link));
        added.all(|link| self.link(link).is_none_or(|rail| rail.drained(self.endpoint(to.0, link))))
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        self.next_event(now)
    }

    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        let held = self.held.get(Handle::from_bits(frame.0));
        let link = held.and_then(|held| Some((self.link(held.link as usize)?, held.id)));
        link.map_or(0, |(link, id)| link.read(FrameId(id), at, into))
    }

    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Cookie) -> Delivery {
        let held = self.let_go(Handle::from_bits(frame.0));
        let Some((link, id)) = held.and_then(|(link, id)| Some((self.link_mut(link)?, id))) else {
            return Delivery::Done;
        };
        // SAFETY: passed on from the caller. The link may hand the sink over to another link (`deliver_rest`), and one of them
        // reports the end.
        unsafe { link.deliver(id, skip, sink, cookie) }
    }

    fn release(&mut self, frame: FrameId) {
        if let Some((link, id)) = self.let_go(Handle::from_bits(frame.0)) {
            self.release_on(link, id);
        }
    }

    fn flush(&mut self) {
        self.links.as_mut().iter_mut().for_each(Rail::flush);
    }

    fn poll_at(&self) -> Option<Instant> {
        // A frame that waits to migrate waits for room on a link, which comes with an arrival or a timer of that link.
        let own = (self.more || self.next_ready().is_some()).then_some(self.now);
        self.links().iter().map(Rail::poll_at).chain([own]).flatten().min()
    }

    fn wake_on_demand(&mut self, on: bool) {
        self.links.as_mut().iter_mut().for_each(|rail| rail.wake_on_demand(on));
    }

    fn signal(&mut self, to: Endpoint) {
        let added = self.peers.at(to.0).map_or(0, |state| state.added);
        for link in (0..self.count()).filter(|link| has(added, *link)) {
            let endpoint = self.endpoint(to.0, link);
            if let Some(rail) = self.link_mut(link) {
                rail.signal(endpoint);
            }
        }
    }

    fn arm(&mut self) -> bool {
        !self.more && self.next_ready().is_none() && self.links.as_mut().iter_mut().all(Rail::arm)
    }
}

impl<R: FullRail, L: AsRef<[R]> + AsMut<[R]>> FastPath for Bundle<'_, R, L> {
    unsafe fn send_now(&mut self, to: Endpoint, tag: u8, header: [u64; 3], body: Span) -> Result<Sent, SendError> {
        let len = (body.len() as u32).wrapping_add(size_of_val(&header) as u32);
        let shape = Shape { tag, lane: Lane::Eager, header: size_of_val(&header) as u8, len };
        // SAFETY: passed on from the caller.
        self.give(to, shape, |rail, endpoint| unsafe { rail.send_now(endpoint, tag, header, body) })
    }
}

impl<R: FullRail, L: AsRef<[R]> + AsMut<[R]>> RequestCache for Bundle<'_, R, L> {}

impl<R: FullRail, L: AsRef<[R]> + AsMut<[R]>> SingleCopy for Bundle<'_, R, L> {}

impl<R: FullRail, L: AsRef<[R]> + AsMut<[R]>> DeviceMemory for Bundle<'_, R, L> {}

// The frames of a bundle migrate between its links, but not to other rails.
impl<R: FullRail, L: AsRef<[R]> + AsMut<[R]>> Failover for Bundle<'_, R, L> {}

impl<R: FullRail, L: AsRef<[R]> + AsMut<[R]>> Liveness for Bundle<'_, R, L> {
    fn ask_host(&mut self, of: Endpoint) -> Option<Instant> {
        let state = self.peer(of.0)?;
        let mut heard = None;
        for link in (0..self.count()).filter(|link| state.is_usable(*link)) {
            let endpoint = self.endpoint(of.0, link);
            heard = heard.max(self.link_mut(link).and_then(|rail| rail.ask_host(endpoint)));
        }
        heard
    }

    fn answered_since(&mut self, of: Endpoint, since: Option<Instant>) -> bool {
        let Some(state) = self.peer(of.0) else { return false };
        let mut answered = false;
        for link in (0..self.count()).filter(|link| state.is_usable(*link)) {
            let endpoint = self.endpoint(of.0, link);
            answered |= self.link_mut(link).is_some_and(|rail| rail.answered_since(endpoint, since));
        }
        answered
    }

    fn is_connected(&self, peer: Endpoint) -> bool {
        let added = self.peers.at(peer.0).map_or(0, |state| state.added);
        let mut added = (0..self.count()).filter(|link| has(added, *link));
        added.any(|link| self.link(link).is_some_and(|rail| rail.is_connected(self.endpoint(peer.0, link))))
    }

    fn give_up(&mut self, to: Endpoint, what: GiveUp) -> bool {
        match what {
            GiveUp::Peer => self.delete(to.0, true),
            GiveUp::Link => return false, // a bundle is no link
        }
        true
    }
}
