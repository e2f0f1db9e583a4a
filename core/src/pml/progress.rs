//! What happens when the engine is called: events of the rails, upcalls of the frames, what waits to be sent.

use super::engine::{Pml, Rails};
use super::peer::{ASKED, ASKING, CREDIT_DUE, HOLDING, ORPHANED, PROBE, PeerState, REJECT_DUE, Standing};
use super::rdma::Plan;
use super::receive::ENVELOPE_COOKIE;
use super::request::{ACTIVE, ANSWERING, NOTIFY, Outcome, Phase, RECEIVE, Request, State};
use super::stall::{HEARD, TO_ANSWER, TO_ASK};
use super::unexpected::{Stage, Unexpected};
use super::{Counters, Failure, Status};
use crate::pool::Handle;
use crate::ptl::{self, First, Upcalls};
use crate::rail::{Cookie, Event, FastPath, Frame, Lost, Peer, Rail, tags};
use crate::rma::{self, Rma};
use crate::time::Instant;
use crate::wire::{self, Reason};

impl<R: Rails> Pml<'_, R> {
    /// Takes in what arrived, one event from each rail, and sends what waits. Tells how many events there were, requests
    /// that ended by sending and peers that were given up among them: 0 means idle, and that nobody need look after a request.
    ///
    /// `now` is what the rails' timers follow; a stamp of some microseconds ago does as well.
    #[inline(always)]
    pub fn progress(&mut self, now: Instant) -> u32 {
        let mut events = 0u32;
        for index in 0..self.rails.count() {
            let Some(rail) = self.rails.rail_mut(index) else { continue };
            events = events.wrapping_add(match rail.poll_short(ptl::TAG) {
                Some(short) => {
                    if !self.arrive_at_once(&short) {
                        self.arrive_again(index);
                    }
                    1
                }
                None => self.poll(index, now),
            });
        }
        if self.stall.is_due(now) {
            events = events.wrapping_add(self.look_is_due(now, events == 0));
        }
        if self.waiting {
            events = events.wrapping_add(self.send_waiting());
        }
        events
    }

    /// Pushes out what rails hold back for more to go with ([`Rail::flush`](crate::rail::Rail::flush)): before the caller does something else for a while,
    /// and somebody waits for what it has sent.
    pub fn flush(&mut self) {
        for index in 0..self.rails.count() {
            if let Some(rail) = self.rails.rail_mut(index) {
                rail.flush();
            }
        }
    }

    /// When [`progress`](Self::progress) must be called at the latest, although nothing arrives.
    pub fn poll_at(&self) -> Option<Instant> {
        let rails = (0..self.rails.count()).filter_map(|index| self.rails.rail(index)?.poll_at());
        rails.chain(self.stall_at()).min()
    }

    /// Says that the caller is about to sleep on the rails' wait handles. `true`: nothing waits here, and what comes makes
    /// a handle ready. `false`: make progress first.
    pub fn arm(&mut self) -> bool {
        let idle = self.active_is_waiting() && self.refused == 0 && self.work_is_waiting();
        idle && !self.has_one_sided_to_send() && self.arm_rails()
    }

    /// As [`arm`](Self::arm), for a sleep that is short although something waits here, since no rail had room for it: the rails
    /// are armed, so that one which tells when there is room may wake the caller earlier. `false`: something came.
    pub fn arm_rails(&mut self) -> bool {
        (0..self.rails.count()).all(|index| self.rails.rail_mut(index).is_none_or(Rail::arm))
    }

    /// Whether nothing that this engine has to say is still on its way out: answers and credit have been sent, and the rails
    /// have drained. Before an engine goes while others go on; sends that are over have arrived then, or will.
    pub fn has_said_all(&mut self) -> bool {
        let said =
            self.active.is_empty() && self.refused == 0 && self.work_is_waiting() && !self.has_one_sided_to_send();
        let all_said_to = |(peer, state): (u32, &PeerState)| {
            state.standing != Standing::Up || (self.drained(peer) && !state.has(REJECT_DUE) && !self.has_to_tell(peer))
        };
        said && (0u32..).zip(self.peers.iter()).all(all_said_to)
    }

    /// Announces the request among [`next_completed`](Self::next_completed) when it is over.
    pub fn notify(&mut self, request: Request) {
        let Some(state) = self.requests.get_mut(request.0) else { return };
        if state.flags & NOTIFY != 0 {
            return;
        }
        state.flags |= NOTIFY;
        if state.phase == Phase::Done {
            self.completed.push(&mut self.requests, request.0.slot());
        }
    }

    /// The next completed request of those given to [`notify`](Self::notify); its outcome is still to be taken.
    pub fn next_completed(&mut self) -> Option<Request> {
        let slot = self.completed.first()?;
        self.completed.remove(&mut self.requests, slot);
        if let Some(state) = self.requests.at_mut(slot) {
            state.flags &= !NOTIFY;
        }
        self.requests.handle(slot).map(Request)
    }

    /// Lets a request end by itself: its outcome is dropped. Its memory must stay until then; an engine that is
    /// [`idle`](Self::used) of requests has let go of all.
    pub fn detach(&mut self, request: Request) {
        let Some(state) = self.requests.get_mut(request.0) else { return };
        if state.phase == Phase::Done {
            let _ = self.take_outcome(request);
        } else {
            state.flags |= super::request::DETACHED;
        }
    }

    /// Forgets a peer: requests to it end with [`Failure::PeerFailed`], messages from it are dropped, and its rails
    /// touch none of their memory any more. It may be added again.
    pub fn del_peer(&mut self, peer: Peer) {
        self.forget_links(peer.0, false);
        self.end_one_sided(peer, rma::Failure::Removed);
        self.drop_peer(peer.0, true);
        if let Some(state) = self.peers.get_mut(peer.0 as usize) {
            state.standing = Standing::Unknown;
        }
    }

    /// Gives a peer up of which the caller knows by other ways that it is gone: as if its rails had reported it lost. Also one
    /// that was never added, since nothing leads to it any more.
    pub fn lose_peer(&mut self, peer: Peer, why: Lost) {
        // No rail knows one that is unknown here, and nothing of it is under way.
        if let Some(state) = self.peers.get_mut(peer.0 as usize).filter(|state| state.standing == Standing::Unknown) {
            state.standing = Standing::Up;
        }
        self.lost(peer, why);
    }

    /// Polls a rail; tells whether there was an event.
    #[inline(never)]
    fn poll(&mut self, index: usize, now: Instant) -> u32 {
        let Some(rail) = self.rails.rail_mut(index) else { return 0 };
        // Looked at in place: moving a frame costs as much as matching it.
        match &rail.poll(now) {
            None => return 0,
            Some(Event::Frame(frame)) if frame.tag == ptl::TAG => {
                // Who waits is told by either kind of poll, and neither may be the slower one.
                if !frame.short().is_some_and(|short| self.arrive_at_once(&short)) {
                    self.frame(index, false, frame);
                }
            }
            // Told again and again, and nothing that anybody waits for, unless a link is given up for it.
            Some(Event::Silent(peer, due)) => return self.link_silent(index, *peer, *due).into(),
            Some(event) => self.event(index, *event),
        }
        1
    }

    /// A short frame that has no quick way.
    #[inline(never)]
    fn arrive_again(&mut self, index: usize) {
        match self.rails.rail_mut(index).and_then(FastPath::poll_again) {
            None => {}
            Some(frame) if frame.tag == ptl::TAG => self.frame(index, false, &frame),
            Some(frame) => self.event(index, Event::Frame(frame)),
        }
    }

    /// A frame has come; `moved`: it was given to another link first.
    #[inline]
    pub(super) fn frame(&mut self, rail: usize, moved: bool, frame: &Frame) {
        if let Some(peer) = self.peers.get_mut(frame.from.0 as usize) {
            peer.signs.set(HEARD);
        }
        ptl::receive(frame, &mut Arrival { pml: self, rail, moved });
    }

    #[cold]
    fn event(&mut self, rail: usize, event: Event) {
        match event {
            Event::Frame(frame) if frame.tag == tags::BTL_BASE => self.one_sided_frame(rail, &frame),
            Event::Frame(frame) => {
                self.counters.foreign = self.counters.foreign.wrapping_add(1);
                self.drop_frame(rail, &frame);
            }
            Event::Sent(cookie) => self.body_sent(cookie),
            Event::Delivered(cookie) => self.body_delivered(cookie),
            Event::Performed(cookie, result) => self.performed(cookie, result),
            Event::Lost(peer, why) => self.lost(peer, why),
            Event::Down(peer, why) => self.link_down(rail, peer, why),
            Event::Up(peer) => self.link_up(rail, peer),
            Event::Silent(peer, due) => {
                self.link_silent(rail, peer, due);
            }
            Event::Migrated(origin, frame) => self.arrive_moved(rail, origin, &frame),
        }
    }

    pub(super) fn body_sent(&mut self, cookie: Cookie) {
        if Rma::is_own(cookie) {
            return self.one_sided_memory(cookie, false);
        }
        let handle = Handle::from_bits(cookie.0);
        let Some(state) = self.requests.get_mut(handle) else { return };
        state.inflight = state.inflight.saturating_sub(1);
        if let Some(peer) = self.peers.get_mut(state.peer as usize) {
            peer.signs.set(HEARD);
        }
        if state.phase == Phase::Leaving && state.inflight == 0 && state.flags & ACTIVE == 0 {
            let outcome = state.outcome;
            self.complete(handle.slot(), outcome);
        }
    }

    pub(super) fn body_delivered(&mut self, cookie: Cookie) {
        if Rma::is_own(cookie) {
            return self.one_sided_memory(cookie, true);
        }
        let handle = Handle::from_bits(cookie.0 & !ENVELOPE_COOKIE);
        if cookie.0 & ENVELOPE_COOKIE != 0 {
            return self.filled(handle);
        }
        let Some(state) = self.requests.get_mut(handle) else { return };
        state.inflight = state.inflight.saturating_sub(1);
        if let Some(peer) = self.peers.get_mut(state.peer as usize) {
            peer.signs.set(HEARD);
        }
        self.settle_receive(handle.slot());
    }

    /// Tells how many requests ended.
    #[cold]
    fn send_waiting(&mut self) -> u32 {
        let before = self.ended;
        // Before anything new, which may have to wait for them at the other side; and streams never leave them room.
        if self.orphans {
            self.run_orphans();
        }
        // Room may be for one alone, and whoever had it goes second the next time.
        let first = self.streams_first;
        for streams in [first, !first] {
            let carried = self.carried();
            if streams {
                self.run_active();
            } else {
                self.run_refused();
                self.run_work();
            }
            if streams == first && self.carried() != carried {
                self.streams_first = !first;
            }
        }
        let one_sided = self.push_out_one_sided();
        self.waiting = (self.active.any() | self.work_head | self.refused) != 0 || one_sided;
        self.ended.wrapping_sub(before)
    }

    /// First fragments and fragments that have left.
    fn carried(&self) -> u64 {
        let Counters { eager_sent, rendezvous_sent, answers_sent, fragments_sent, .. } = self.counters;
        eager_sent.wrapping_add(rendezvous_sent).wrapping_add(answers_sent).wrapping_add(fragments_sent)
    }

    /// Whether all that the work list has to do waits for the other side.
    fn work_is_waiting(&mut self) -> bool {
        let mut next = self.work_head;
        while let Some(index) = next.checked_sub(1)
            && let Some(peer) = self.peers.get(index as usize)
        {
            next = peer.work_next;
            if peer.links == 0 {
                continue; // until a rail is enabled, or comes back
            }
            if peer.has(HOLDING) && !peer.has(ASKING | REJECT_DUE) && peer.has(PROBE) {
                if let Some(peer) = self.peers.get_mut(index as usize) {
                    peer.probes = u8::MAX; // nobody probes while the caller sleeps
                }
                self.lose_patience();
                return false;
            }
            if self.has_to_tell(index) {
                return false;
            }
        }
        true
    }

    /// Whether there is something to be told to a peer that need not wait for the other side.
    fn has_to_tell(&self, index: u32) -> bool {
        let last = self.posting.wrapping_sub(1);
        self.peers.get(index as usize).is_some_and(|peer| {
            // A peer that holds back is in the work list all the time; an ask is out, or there is nothing to ask for.
            let may_ask = peer.has(HOLDING) && !peer.has(ASKING);
            peer.has(CREDIT_DUE | ORPHANED)
                || peer.may_reject()
                || peer.signs.has(TO_ANSWER | TO_ASK)
                || (peer.has(ASKED) && peer.answering == 0)
                || (may_ask && !peer.has(REJECT_DUE) && peer.cursor < last)
                || peer.is_held_up()
        })
    }

    #[cold]
    pub(super) fn lost(&mut self, peer: Peer, why: Lost) {
        let Some(state) = self.peers.get(peer.0 as usize) else { return };
        if state.standing != Standing::Up {
            return;
        }
        warn!("peer {} is lost: {}", peer.0, why as u8);
        self.counters.lost = self.counters.lost.wrapping_add(1);
        self.unusual = true;
        if why == Lost::Stalled {
            self.tell_given_up(peer.0); // it is there, and its rails need not tell it
        }
        self.forget_links(peer.0, why != Lost::Closed);
        self.end_one_sided(peer, rma::Failure::Lost);
        self.drop_peer(peer.0, false);
        if let Some(state) = self.peers.get_mut(peer.0 as usize) {
            (state.standing, state.turn) = (Standing::Lost, Self::reason(why));
        }
        // Who came to its end in good order has said all that it had to say, and is not missed.
        if why != Lost::Closed {
            self.note_failed(peer);
        }
    }

    /// Ends all requests to a peer and drops what it sent and nobody can finish, and what came after that; with `all` also
    /// what is complete.
    /// Its rails are done with its memory.
    pub(super) fn drop_peer(&mut self, index: u32, all: bool) {
        let Some(peer) = self.peers.get_mut(index as usize) else { return };
        let due = peer.next_in;
        *peer = peer.afresh();
        for slot in 0..self.requests.touched() {
            let Some(state) = self.requests.at_mut(slot) else { continue };
            if state.peer != index || state.phase == Phase::Done {
                continue;
            }
            if state.phase == Phase::Taken {
                // For whoever has it as a message: told when it is to be received.
                state.outcome = Outcome::PeerFailed;
                if all && let Some(handle) = self.requests.handle(slot) {
                    self.requests.free(handle);
                }
                continue;
            }
            state.inflight = 0;
            let (phase, flags) = (state.phase, state.flags);
            if flags & RECEIVE != 0 && phase == Phase::Posted {
                self.matcher.unpost(slot);
            }
            self.deactivate(slot);
            self.let_go(slot);
            self.complete(slot, Outcome::PeerFailed);
        }
        // Of the queued messages that cannot be finished, the first: how long ago it came.
        let queued = |envelope: &&Unexpected| envelope.peer == index && envelope.stage == Stage::Queued;
        let age = |envelope: &Unexpected| due.wrapping_sub(envelope.sequence);
        let broken = |envelope: &&Unexpected| {
            (envelope.filling || envelope.rendezvous) && envelope.flags & wire::FLAG_ANSWER == 0
        };
        let envelopes = (0..self.envelopes.touched()).filter_map(|slot| self.envelopes.at(slot));
        let first = envelopes.filter(queued).filter(broken).map(age).max().unwrap_or(0);
        for slot in 0..self.envelopes.touched() {
            let Some(envelope) = self.envelopes.at_mut(slot) else { continue };
            let filling = envelope.filling;
            // What came later than that one must not take its place.
            let behind = envelope.stage == Stage::Queued && age(envelope) < first;
            let drop = all || filling || envelope.rendezvous || envelope.stage == Stage::Parked || behind;
            if envelope.peer != index || !drop {
                continue;
            }
            envelope.filling = false;
            match envelope.stage {
                Stage::Queued => {
                    self.matcher.remove_unexpected(slot);
                }
                // Freed below, with its place in that list: nobody can be told any more.
                Stage::Refused if !filling => {
                    envelope.rendezvous = false;
                    continue;
                }
                // For whoever has it as a message: told when it is to be received.
                Stage::Taken | Stage::Broken if !all => {
                    envelope.stage = Stage::Broken;
                    continue;
                }
                Stage::Parked | Stage::Claimed | Stage::Taken | Stage::Broken | Stage::Refused => {}
            }
            if let Some(handle) = self.envelopes.handle(slot) {
                self.give_back(handle, true);
            }
        }
        self.run_refused(); // before the peer may come back, whose credit these are not
        if let Some(peer) = self.peers.get_mut(index as usize) {
            peer.owed = 0;
        }
    }

    /// Takes the outcome of a request that is done, and frees it. `None` where it is not done.
    #[inline]
    pub(super) fn take_outcome(&mut self, request: Request) -> Option<Result<Status, Failure>> {
        // The quick way: one look at the request.
        let Some(state) = self.requests.free_if(request.0, State::has_succeeded) else {
            return self.take_outcome_slow(request);
        };
        Some(Ok(Status { peer: Peer(state.peer), tag: state.tag, received: state.total, delivered: state.total }))
    }

    #[inline(never)]
    fn take_outcome_slow(&mut self, request: Request) -> Option<Result<Status, Failure>> {
        let Some(state) = self.requests.get(request.0) else { return Some(Err(Failure::NoRequest)) };
        if state.phase != Phase::Done {
            return None;
        }
        if state.flags & NOTIFY != 0 {
            self.completed.remove(&mut self.requests, request.0.slot());
        }
        let state = self.requests.free(request.0)?;
        let peer = Peer(state.peer);
        let receive = state.flags & RECEIVE != 0;
        let delivered = if receive { state.fits() } else { state.total };
        let status = Status { peer, tag: state.tag, received: state.total, delivered };
        Some(match state.outcome {
            Outcome::Success if status.delivered < status.received => Err(Failure::Truncated(status)),
            Outcome::Success => Ok(status),
            Outcome::Cancelled => Err(Failure::Cancelled),
            Outcome::PeerFailed => Err(Failure::PeerFailed(peer)),
            Outcome::Restarted => Err(Failure::Restarted(peer)),
            Outcome::NotReady => Err(Failure::NotReady(peer)),
            Outcome::NoCommunicator => Err(Failure::NoCommunicator(peer)),
        })
    }

    /// The send that a peer's ack, finish or reject names.
    fn waiting(&mut self, from: Peer, bits: u64) -> Option<u32> {
        let slot = self.still_waiting(from, bits);
        match slot {
            Some(slot) => self.settle_loan(slot),
            None => self.counters.stale = self.counters.stale.wrapping_add(1),
        }
        slot
    }

    /// The same, for what may rightly come too late.
    fn still_waiting(&self, from: Peer, bits: u64) -> Option<u32> {
        let handle = Handle::from_bits(bits);
        let state = self.requests.get(handle)?;
        let waits = state.phase == Phase::Waiting && state.peer == from.0 && state.flags & RECEIVE == 0;
        waits.then(|| handle.slot())
    }
}

/// The engine while it handles a frame of one rail.
struct Arrival<'a, 'm, R> {
    pml: &'a mut Pml<'m, R>,
    rail: usize,
    moved: bool,
}

impl<R: Rails> Upcalls for Arrival<'_, '_, R> {
    #[inline]
    fn credit(&mut self, from: Peer, envelopes: u16, units: u16) {
        let Some(peer) = self.pml.peers.get_mut(from.0 as usize) else { return };
        peer.gain(envelopes, units);
        if !peer.held.is_empty() {
            self.pml.put_to_work(from.0);
        }
    }

    #[inline]
    fn first(&mut self, frame: &Frame, first: First) -> bool {
        let from = frame.from.0;
        let pml = &mut *self.pml;
        let Some(peer) = pml.peers.get_mut(from as usize) else {
            pml.drop_frame(self.rail, frame);
            return false;
        };
        if peer.standing != Standing::Up {
            pml.drop_frame(self.rail, frame);
            return false;
        }
        if first.flags & wire::FLAG_ANSWER != 0 {
            return pml.on_answer(self.rail, frame, first);
        }
        let ahead = first.sequence.wrapping_sub(peer.next_in) as i32;
        if ahead == 0 {
            peer.next_in = peer.next_in.wrapping_add(1);
            let parked = peer.parked != 0;
            let matched = pml.arrive(self.rail, frame, first);
            if parked {
                pml.unpark(from);
            }
            return matched;
        }
        if ahead > 0 {
            pml.park(self.rail, frame, first);
        } else {
            pml.counters.trespasses = pml.counters.trespasses.wrapping_add(1);
            pml.drop_frame(self.rail, frame);
        }
        false
    }

    #[inline]
    fn fragment(&mut self, frame: &Frame, header: wire::Fragment) {
        self.pml.deliver_fragment(self.rail, frame, header);
    }

    fn acked(&mut self, from: Peer, header: wire::Ack) {
        if header.common.flags & wire::FLAG_MARK != 0 {
            // Kept by a matched probe. The ack that counts follows, or came before.
            if let Some(slot) = self.pml.still_waiting(from, header.sender.get()) {
                self.pml.settle_answer(slot, true);
            }
            return;
        }
        let Some(slot) = self.pml.waiting(from, header.sender.get()) else { return };
        self.pml.settle_answer(slot, true);
        let Some(state) = self.pml.requests.at_mut(slot) else { return };
        state.wanted = header.wanted.get().min(state.total);
        let flag = header.common.flags & (wire::FLAG_PUT | wire::FLAG_GET);
        if flag != 0 || !self.pml.rdma.is_idle() {
            self.pml.await_device(slot, Plan { flag, by_frames: header.by_frames.get() });
        }
        let Some(state) = self.pml.requests.at_mut(slot) else { return };
        state.remote = header.receiver.get();
        self.pml.start_streaming(slot);
    }

    fn finished(&mut self, from: Peer, header: wire::Finish) {
        let Some(slot) = self.pml.waiting(from, header.sender.get()) else { return };
        self.pml.settle_answer(slot, true);
        self.pml.end_send(slot, Outcome::Success);
    }

    fn rejected(&mut self, from: Peer, header: wire::Reject) {
        let Some(slot) = self.pml.waiting(from, header.sender.get()) else { return };
        let reason = Reason::from_wire(header.reason.get());
        let answers = self.pml.requests.at(slot).is_some_and(|state| state.flags & ANSWERING != 0);
        if reason == Some(Reason::Unmatched) && !answers {
            // Only an answer goes back. What was sent in its turn keeps its place at the receiver, which has yet to say
            // what becomes of it.
            self.pml.counters.stale = self.pml.counters.stale.wrapping_add(1);
            return;
        }
        self.pml.counters.rejects_received = self.pml.counters.rejects_received.wrapping_add(1);
        let outcome = match reason {
            Some(Reason::Unmatched) => return self.pml.settle_answer(slot, false),
            Some(Reason::NotReady) => Outcome::NotReady,
            Some(Reason::NoCommunicator) | None => Outcome::NoCommunicator,
        };
        self.pml.settle_answer(slot, true);
        self.pml.end_send(slot, outcome);
    }

    fn held(&mut self, from: Peer, header: wire::Held) {
        self.pml.on_held(from.0, header);
    }

    fn asked(&mut self, from: Peer, header: wire::Ask) {
        self.pml.on_asked(from.0, header);
    }

    fn nothing(&mut self, from: Peer, header: wire::Nothing) {
        self.pml.on_nothing(from.0, header);
    }

    fn offered(&mut self, from: Peer, header: wire::Offer) {
        self.pml.on_offer(from, (!self.moved).then_some(self.rail), &header);
    }

    fn performed(&mut self, from: Peer, header: wire::Performed) {
        self.pml.on_performed(from, &header);
    }

    fn questioned(&mut self, from: Peer) {
        self.pml.on_question(from.0);
    }

    #[cold]
    fn given_up(&mut self, from: Peer) {
        self.pml.lost(from, Lost::Broken);
    }

    #[cold]
    fn malformed(&mut self, frame: &Frame) {
        self.pml.counters.malformed = self.pml.counters.malformed.wrapping_add(1);
        self.pml.drop_frame(self.rail, frame);
    }
}
