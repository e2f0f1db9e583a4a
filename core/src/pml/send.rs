//! Sends: first fragments, credit, and the schedule of the rest over the links.

use core::fmt;

use super::engine::{Pml, Rails};
use super::peer::{DOWN, LINKED, Link, PeerState, Standing};
use super::rdma::Rest;
use super::request::{
    ACTIVE, ANSWERING, DETACHED, DRAIN, List, Mode, NOTIFY, Outcome, Phase, READY, RECEIVE, Request, SYNCHRONOUS,
    State, say_restarted,
};
use super::stall::{CROWDED_OUT, HEARD};
use crate::convertor::{Parts, Span};
use crate::error::Blame;
use crate::pool::Handle;
use crate::rail::{COPIED, Failover, RequestCache};
use crate::rail::{Endpoint, Peer, Rail, RemoteBuffer, SendError, Sent};
use crate::{ptl, wire};

/// Bytes that the header of a rendezvous has more than that of an eager message.
const RENDEZVOUS_MORE: u32 = (size_of::<wire::Rendezvous>() - size_of::<wire::Match>()) as u32;

/// What became of a send that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use]
pub enum Sending {
    /// Over: the memory may be reused. No request was taken.
    Complete,
    /// Under way: the memory must stay as it is until the request's outcome is taken.
    Pending(Request),
}

/// Why an operation was not accepted. Nothing was begun, and the memory is the caller's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Refusal {
    /// All requests are taken: take outcomes, or set up with more.
    Busy,
    /// The peer was never added.
    NoPeer(Peer),
    /// The peer was lost.
    PeerFailed(Peer),
    /// The peer was lost and is back since the communicator was made: what is there now is not in it.
    Restarted(Peer),
    /// The rank, tag or communicator is not a valid one.
    Invalid,
}

impl Refusal {
    /// Who has to act.
    pub const fn blame(self) -> Blame {
        match self {
            Self::Busy => Blame::Resource,
            Self::PeerFailed(_) | Self::Restarted(_) => Blame::Peer,
            Self::NoPeer(_) | Self::Invalid => Blame::Caller,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("all requests are taken: take outcomes first, or set up with more requests"),
            Self::NoPeer(peer) => write!(f, "peer {} was never added", peer.0),
            Self::PeerFailed(peer) => write!(f, "peer {} was lost", peer.0),
            Self::Restarted(peer) => say_restarted(f, *peer),
            Self::Invalid => f.write_str("no such rank, tag or communicator"),
        }
    }
}

impl core::error::Error for Refusal {}

impl<R: Rails> Pml<'_, R> {
    /// Sends `data` to a peer: a message with `context` and `tag`.
    ///
    /// # Errors
    /// [`Refusal`]; nothing was begun then.
    ///
    /// # Safety
    /// The memory of `data` stays readable and unchanged until this answers [`Sending::Complete`], or until the outcome
    /// of the request is taken with [`test`](Self::test).
    #[inline]
    pub unsafe fn isend(
        &mut self,
        to: Peer,
        context: u32,
        tag: u32,
        mode: Mode,
        data: Span,
    ) -> Result<Sending, Refusal> {
        let len = data.len();
        let count = self.rails.count();
        let Some(peer) = self.peers.get_mut(to.0 as usize) else { return Err(Refusal::NoPeer(to)) };
        // The quick way: a short message of the processor's, with credit, that nothing goes before.
        if len <= u64::from(peer.eager_body)
            && peer.is_open()
            && len <= COPIED
            && matches!(mode, Mode::Standard | Mode::Buffered)
            && data.accelerator().is_none()
            && let Some(rail) = self.rails.rail_mut(peer.rail as usize)
        {
            let words = wire::Match::words(context, tag, peer.next_out, peer.owed, peer.frame_out);
            // SAFETY: the body is copied before this returns; the caller vouches for it.
            if unsafe { ptl::eager(rail, Endpoint(peer.endpoint), words, data) }.is_ok() {
                peer.sent();
                if len == 0 {
                    peer.sent_message(false);
                } else {
                    peer.next_out = peer.next_out.wrapping_add(1); // within the credit
                }
                if count != 1 {
                    next_turn(peer, self.links, to.0, count);
                }
                self.counters.eager_sent = self.counters.eager_sent.wrapping_add(1);
                return Ok(Sending::Complete);
            }
        }
        let parts = data.parts(); // spares the quick way from writing the span down for a call that it does not make
        self.isend_slow(to, context, tag, mode, parts)
    }

    /// Takes a request, puts it behind what is held back, and tries at once.
    fn isend_slow(&mut self, to: Peer, context: u32, tag: u32, mode: Mode, data: Parts) -> Result<Sending, Refusal> {
        let data = Span::of_parts(data);
        let Some(peer) = self.peers.get_mut(to.0 as usize) else { return Err(Refusal::NoPeer(to)) };
        match peer.standing {
            Standing::Up => {}
            Standing::Unknown => return Err(Refusal::NoPeer(to)),
            Standing::Lost => return Err(Refusal::PeerFailed(to)),
        }
        let flags = match mode {
            Mode::Standard | Mode::Buffered => 0,
            Mode::Complete => DRAIN,
            Mode::Synchronous => SYNCHRONOUS,
            Mode::Ready => SYNCHRONOUS | READY,
        };
        let state = State {
            phase: Phase::Held,
            flags,
            peer: to.0,
            context,
            tag,
            span: data,
            total: data.len(),
            ..zerocopy::FromZeros::new_zeroed()
        };
        let Ok(handle) = self.requests.take(state) else { return Err(Refusal::Busy) };
        peer.hold(&mut self.requests, handle.slot());
        self.take_cached(to.0, handle.slot());
        self.put_to_work(to.0);
        self.push_held(to.0);
        match self.requests.get(handle) {
            Some(state) if state.phase == Phase::Done && state.outcome == Outcome::Success => {
                self.requests.free(handle);
                Ok(Sending::Complete)
            }
            _ => Ok(Sending::Pending(Request(handle))),
        }
    }

    /// Gives a send an entry in the cache of the rail that is to carry its first fragment, where that rail keeps one and
    /// it has room (P16).
    fn take_cached(&mut self, to: u32, slot: u32) {
        let Some((index, _)) = self.first_link(to) else { return };
        let Some(cache) = self.caches.iter_mut().find(|cache| cache.rail() == index) else { return };
        let Some(rail) = self.rails.rail_mut(index) else { return };
        if let (Some(entry), Some(state)) = (cache.take(|extra| rail.request_init(extra)), self.requests.at_mut(slot)) {
            state.cached_by = index as u8;
            state.cached = entry.wrapping_add(1);
        }
    }

    /// Undoes the preparation of all cached requests that are not in use (P19): under pressure, or before the rails go.
    pub fn drain_caches(&mut self) {
        for cache in self.caches.iter_mut() {
            if let Some(rail) = self.rails.rail_mut(cache.rail()) {
                cache.drain(|extra| rail.request_fini(extra));
            }
        }
    }

    /// Sends first fragments of what is held back for a peer, in order, as far as credit and room go.
    pub(super) fn push_held(&mut self, to: u32) {
        let mut none_left = true;
        loop {
            let Some(peer) = self.peers.get_mut(to as usize) else { return };
            peer.signs.clear(CROWDED_OUT);
            // While an answer is out nothing may go, or a later message with its tag could overtake it.
            if peer.standing != Standing::Up || peer.answering != 0 || peer.envelopes() == 0 {
                return;
            }
            let Some(slot) = peer.held.first() else { return };
            let Some(state) = self.requests.at(slot) else { return };
            let len = state.total;
            let eager = state.flags & SYNCHRONOUS == 0 && len <= u64::from(peer.eager_body);
            let eager = eager && (peer.units() != 0 || len == 0);
            let rail = peer.rail;
            let eager = eager && (state.span.accelerator().is_none() || len <= self.accelerators_eager(rail));
            let sent = self.by_turns(to, |engine| {
                if len > COPIED
                    && let Some(loan) = engine.expose(to, slot)
                {
                    engine.send_first(to, slot, false, Some(&loan))
                } else if eager {
                    engine.send_eager(to, slot)
                } else {
                    engine.send_first(to, slot, false, None)
                }
            });
            if let Err(why) = sent {
                self.counters.busy = self.counters.busy.wrapping_add(1);
                if none_left
                    && why == SendError::Busy
                    && let Some(peer) = self.peers.get_mut(to as usize)
                {
                    peer.signs.set(CROWDED_OUT);
                }
                return;
            }
            none_left = false;
        }
    }

    /// Bytes of a message from an accelerator that goes whole, at most.
    #[cold]
    fn accelerators_eager(&self, rail: u8) -> u64 {
        self.rails.rail(rail.into()).map_or(0, |rail| rail.attributes().accelerator.eager_limit.into())
    }

    /// Sends a first fragment by the link whose turn it is, or by the next that has room: one without may not be connected, and
    /// not be for long. Where none has, it is the same link's turn again.
    pub(super) fn by_turns(
        &mut self,
        to: u32,
        mut send: impl FnMut(&mut Self) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        let firsts = self.peers.get(to as usize).map_or(1, |peer| peer.firsts.max(1));
        for _ in 0..firsts {
            match send(self) {
                Err(SendError::Busy) => {}
                other => return other,
            }
            if let Some(peer) = self.peers.get_mut(to as usize) {
                next_turn(peer, self.links, to, self.rails.count());
            }
        }
        Err(SendError::Busy)
    }

    /// The link whose turn it is to carry a first fragment.
    pub(super) fn first_link(&self, to: u32) -> Option<(usize, Endpoint)> {
        let peer = self.peers.get(to as usize)?;
        Some((peer.rail as usize, Endpoint(peer.endpoint)))
    }

    /// Sends a whole message that is first among those held back.
    fn send_eager(&mut self, to: u32, slot: u32) -> Result<(), SendError> {
        let (index, endpoint) = self.first_link(to).ok_or(SendError::Unreachable)?;
        let handle = self.requests.handle(slot).ok_or(SendError::Unreachable)?;
        let state = self.requests.at_mut(slot).ok_or(SendError::Unreachable)?;
        let peer = self.peers.get_mut(to as usize).ok_or(SendError::Unreachable)?;
        let rail = self.rails.rail_mut(index).ok_or(SendError::Unreachable)?;
        let mut header = wire::Match::new(state.context, state.tag, peer.next_out);
        peer.stamp(&mut header.common);
        let extra = extra(self.caches, index, state);
        // SAFETY: the caller of `isend` vouches for the memory until the request is done, and it is not done while the
        // rail reads in place (`inflight`).
        let sent = unsafe { ptl::first(rail, endpoint, &header, state.span, request_cookie(handle), extra) }?;
        peer.sent();
        peer.sent_message(state.total != 0);
        next_turn(peer, self.links, to, self.rails.count());
        self.counters.eager_sent = self.counters.eager_sent.wrapping_add(1);
        state.moved = state.total;
        state.wanted = state.total;
        if sent == Sent::InPlace {
            state.inflight = state.inflight.saturating_add(1);
        }
        peer.let_go(&mut self.requests, slot);
        self.end_send(slot, Outcome::Success);
        Ok(())
    }

    /// Sends the first fragment of a message whose rest waits for the receiver. As an answer it takes no credit, and
    /// stays among those held back until it is settled. With a loan it brings that and no payload.
    pub(super) fn send_first(
        &mut self,
        to: u32,
        slot: u32,
        answer: bool,
        loan: Option<&RemoteBuffer>,
    ) -> Result<(), SendError> {
        let (index, endpoint) = self.first_link(to).ok_or(SendError::Unreachable)?;
        let handle = self.requests.handle(slot).ok_or(SendError::Unreachable)?;
        let state = self.requests.at_mut(slot).ok_or(SendError::Unreachable)?;
        let peer = self.peers.get_mut(to as usize).ok_or(SendError::Unreachable)?;
        let rail = self.rails.rail_mut(index).ok_or(SendError::Unreachable)?;
        let mut header = wire::Rendezvous::new(state.context, state.tag, peer.next_out, handle, state.total);
        // What is lent may be taken in before it is matched, unless the mode forbids that.
        let early = loan.is_some() && state.flags & SYNCHRONOUS == 0;
        header.common.flags = if early { 0 } else { wire::FLAG_ACK }
            | if answer { wire::FLAG_ANSWER } else { 0 }
            | if state.flags & READY != 0 { wire::FLAG_READY } else { 0 }
            | if loan.is_some() { wire::FLAG_LENT } else { 0 };
        // Payload goes along where the receiver has a unit for it.
        let most = if answer || loan.is_some() || peer.units() == 0 {
            0
        } else {
            let attributes = rail.attributes();
            let frame = attributes.eager_limit.saturating_sub(size_of::<wire::Rendezvous>() as u32);
            let most = attributes.rendezvous_eager_limit.min(frame).min(peer.eager_body);
            // Where frames move, each rail takes it: the header is longer than that of an eager message.
            if peer.has(LINKED) { most.min(peer.eager_body.saturating_sub(RENDEZVOUS_MORE)) } else { most }
        };
        let payload = state.span.window(0, u64::from(most));
        let body = loan.map_or(payload, |loan| Span::of(&loan.0));
        peer.stamp(&mut header.common);
        let extra = extra(self.caches, index, state);
        // SAFETY: as in `send_eager`; a loan is so short that it is copied.
        let sent = unsafe { ptl::first(rail, endpoint, &header, body, request_cookie(handle), extra) }?;
        peer.sent();
        state.moved = payload.len();
        state.phase = Phase::Waiting;
        if sent == Sent::InPlace {
            state.inflight = state.inflight.saturating_add(1);
        }
        if answer {
            state.flags |= ANSWERING;
            peer.answering = slot.wrapping_add(1);
            self.counters.answers_sent = self.counters.answers_sent.wrapping_add(1);
        } else {
            peer.sent_message(!body.is_empty());
            next_turn(peer, self.links, to, self.rails.count());
            peer.let_go(&mut self.requests, slot);
            self.counters.rendezvous_sent = self.counters.rendezvous_sent.wrapping_add(1);
            if loan.is_some() {
                self.lent(slot);
            }
        }
        Ok(())
    }

    /// The receiver wants the rest: from where we are up to `wanted`.
    pub(super) fn start_streaming(&mut self, slot: u32) {
        let Some(state) = self.requests.at_mut(slot) else { return };
        if state.moved >= state.wanted {
            return self.end_send(slot, Outcome::Success);
        }
        state.phase = Phase::Streaming;
        self.activate(slot);
    }

    /// Ends a send of which nothing more is to go, as soon as no rail reads its memory, and where the mode asks for it,
    /// the rails have drained.
    pub(super) fn end_send(&mut self, slot: u32, outcome: Outcome) {
        self.let_go(slot);
        let Some(state) = self.requests.at_mut(slot) else { return };
        state.outcome = outcome;
        state.phase = Phase::Leaving;
        let (to, inflight, drain) = (state.peer, state.inflight, state.flags & DRAIN != 0);
        if drain && !self.drained(to) {
            self.activate(slot);
        } else if inflight == 0 {
            self.ended = self.ended.wrapping_add(1);
            self.complete(slot, outcome);
        }
    }

    /// Whether all rails to a peer have handed over what was committed.
    pub(super) fn drained(&self, to: u32) -> bool {
        self.row(to).all(|link| {
            let (rail, endpoint) = (self.rails.rail(link.rail as usize), Endpoint(link.endpoint));
            // Of a link that is down nothing is left once other links have what it could not deliver.
            rail.is_none_or(|rail| {
                rail.drained(endpoint) || (link.aside & DOWN != 0 && rail.next_unacked(endpoint).is_none())
            })
        })
    }

    /// Puts a request into the active list.
    pub(super) fn activate(&mut self, slot: u32) {
        let Some(state) = self.requests.at_mut(slot) else { return };
        if state.flags & ACTIVE == 0 {
            self.waiting = true;
            state.flags |= ACTIVE;
            self.active.push(&mut self.requests, slot);
        }
    }

    /// Takes a request out of the active list, if it is there.
    pub(super) fn deactivate(&mut self, slot: u32) {
        let Some(state) = self.requests.at_mut(slot) else { return };
        if state.flags & ACTIVE != 0 {
            state.flags &= !ACTIVE;
            self.active.remove(&mut self.requests, slot);
        }
    }

    /// Sends fragments of a request as far as rails take them. Leaves the active list when all have been handed over.
    ///
    /// A link that was busy is left alone until the next round, by this request and by those behind it: asking again costs
    /// more than all else here, and hardly ever finds room.
    pub(super) fn stream(&mut self, slot: u32) {
        let (count, round) = (self.rails.count(), self.round);
        let most = self.requests.at(slot).map_or(0, |state| self.longest_fragment(state.peer));
        let wants_room = !self.rdma.is_idle() && self.further(slot);
        loop {
            let Some(state) = self.requests.at(slot) else { return };
            let until = self.frames_until(slot, state.wanted);
            if state.moved >= until {
                match self.after_frames(slot) {
                    Rest::Nothing => break,
                    Rest::ByFrames => continue,
                    Rest::ByDevice if wants_room => return,
                    Rest::ByDevice => return self.deactivate(slot),
                }
            }
            let (to, from, left) = (state.peer, state.moved, until.saturating_sub(state.moved));
            let (span, remote) = (state.span, state.remote);
            let Some(handle) = self.requests.handle(slot) else { return };
            let start = (to as usize).wrapping_mul(count);
            let links = self.peers.get(to as usize).map_or(0, |peer| peer.links as usize);
            let left = left.min(most);
            let Some(row) = self.links.get_mut(start..start.wrapping_add(links)) else { return };
            let (index, sent, bytes) = loop {
                let Some(index) = least_used(row, round) else { return };
                let Some(link) = row.get_mut(index) else { return };
                let Some(rail) = self.rails.rail_mut(link.rail as usize) else { return };
                let Some(peer) = self.peers.get_mut(to as usize) else { return };
                let mut header = wire::Fragment::new(remote, from);
                peer.stamp(&mut header.common);
                let rest = span.window(from, left);
                // SAFETY: as in `send_eager`.
                match unsafe { ptl::fragment(rail, Endpoint(link.endpoint), &header, rest, request_cookie(handle)) } {
                    Ok((sent, bytes)) => {
                        peer.sent();
                        peer.signs.set(HEARD); // there is room again
                        break (index, sent, bytes);
                    }
                    Err(_) => {
                        self.counters.busy = self.counters.busy.wrapping_add(1);
                        link.busy_in = round;
                    }
                }
            };
            charge(row, index, round, bytes);
            self.counters.fragments_sent = self.counters.fragments_sent.wrapping_add(1);
            let Some(state) = self.requests.at_mut(slot) else { return };
            state.moved = state.moved.saturating_add(bytes);
            if sent == Sent::InPlace {
                state.inflight = state.inflight.saturating_add(1);
            }
        }
        self.deactivate(slot);
        self.end_send(slot, Outcome::Success);
    }

    /// A request is over.
    #[inline]
    pub(super) fn complete(&mut self, slot: u32, outcome: Outcome) {
        let Some(state) = self.requests.at_mut(slot) else { return };
        state.finish(outcome);
        if state.is_awaited() {
            self.end(slot);
        }
    }

    /// What else the end of a request brings.
    #[cold]
    pub(super) fn end(&mut self, slot: u32) {
        let Some(handle) = self.requests.handle(slot) else { return };
        let Some(state) = self.requests.at_mut(slot) else { return };
        if state.flags & RECEIVE != 0 {
            self.unorder(slot);
        } else if let Some(entry) = state.cached.checked_sub(1)
            && let Some(cache) = self.caches.iter_mut().find(|cache| cache.rail() == usize::from(state.cached_by))
        {
            cache.put(entry);
            state.cached = 0;
        }
        let Some(state) = self.requests.at_mut(slot) else { return };
        if state.flags & DETACHED != 0 {
            self.requests.free(handle);
        } else if state.flags & NOTIFY != 0 {
            self.completed.push(&mut self.requests, slot);
        }
    }

    /// Requests of the active list, in turn: each sends what it has to.
    pub(super) fn run_active(&mut self) {
        self.round = self.round.wrapping_add(1).max(1);
        let mut next = self.active.first();
        while let Some(slot) = next {
            next = List::after(&self.requests, slot);
            let Some(state) = self.requests.at(slot) else { return };
            match state.phase {
                Phase::Streaming => self.stream(slot),
                Phase::Responding => self.respond(slot),
                Phase::Receiving => self.further_receive(slot),
                Phase::Leaving => {
                    let (to, inflight, outcome) = (state.peer, state.inflight, state.outcome);
                    if inflight == 0 && self.drained(to) {
                        self.deactivate(slot);
                        self.ended = self.ended.wrapping_add(1);
                        self.complete(slot, outcome);
                    }
                }
                _ => self.deactivate(slot),
            }
        }
    }
}

/// The bytes of a request in the cache of the rail that sends it.
fn extra<'c>(caches: &'c mut [ptl::Cache<'_>], rail: usize, state: &State) -> Option<&'c mut [u8]> {
    let entry = state.cached.checked_sub(1)?;
    if usize::from(state.cached_by) != rail {
        return None; // another rail carries it after all
    }
    caches.iter_mut().find(|cache| cache.rail() == rail)?.extra(entry)
}

/// First fragments go round the links of the lowest latency (P12).
#[inline]
fn next_turn(peer: &mut PeerState, links: &[Link], to: u32, count: usize) {
    if peer.firsts == 1 {
        return;
    }
    let turn = peer.turn.wrapping_add(1);
    peer.turn = if turn < peer.firsts { turn } else { 0 };
    if let Some(link) = links.get((to as usize).wrapping_mul(count).wrapping_add(peer.turn as usize)) {
        (peer.rail, peer.endpoint) = (link.rail, link.endpoint);
    }
}

/// The link that has carried least for its bandwidth, of those that were not busy in this round.
fn least_used(row: &[Link], round: u16) -> Option<usize> {
    let free = row.iter().enumerate().filter(|(_, link)| link.busy_in != round);
    free.min_by_key(|(_, link)| link.share).map(|(index, _)| index)
}

/// Charges a link for bytes that it took. A link that was busy meanwhile does not save up its turn.
pub(super) fn charge(row: &mut [Link], index: usize, round: u16, bytes: u64) {
    let Some(link) = row.get_mut(index) else { return };
    // A bandwidth is never 0 (see `add_peer`), and `max` says so where this is compiled.
    link.share = link.share.wrapping_add(bytes.wrapping_mul(1024) / u64::from(link.bandwidth.max(1)));
    let share = link.share;
    for link in row.iter_mut().filter(|link| link.busy_in == round) {
        link.share = link.share.max(share);
    }
}

/// The cookie of a request's frames.
#[inline]
pub(super) const fn request_cookie(handle: Handle) -> crate::rail::Cookie {
    crate::rail::Cookie(handle.to_bits())
}
