//! A link is a rail: the implementations of [`Rail`] and its extensions.

use zerocopy::FromZeros;

use super::card::Card;
use super::checksum::Checksum;
use super::congestion::CongestionWindow;
use super::header::{self, Kind};
use super::path::{Below, ConnState, Session};
use super::paths::{SEVERAL, start};
use super::pending_delivery::{PARTIAL, REPEATS};
use super::state::Link;
use crate::convertor::{Span, copy_slice};
use crate::rail::access::Access;
use crate::rail::native::{Key, Native, NativeError, Region};
use crate::rail::tags;
use crate::rail::{
    Attributes, Claim, Cookie, Delivery, DeviceMemory, Endpoint, Event, Failover, FastPath, FrameId, FullRail, GiveUp,
    Grant, LATER, Lane, Liveness, Origin, Peer, Rail, RemoteBuffer, RequestCache, SendError, Sent, Shape, SingleCopy,
    Ticket, UnackedFrame, Unreachable,
};
use crate::time::Instant;

/// The most events of the rail below that one poll processes without an event for the caller.
const AT_ONCE: u32 = 64;
/// How many polls may pass before acknowledgements are sent although the rail below is never idle.
const TURNS: u32 = 16;
/// How many polls may pass before timers are run although the rail below is never idle. It is better to run them when all
/// frames that have arrived were read.
const TIMER_TURNS: u32 = 64;

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail, C: Checksum> Rail for Link<'_, R, C> {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn card(&self) -> &[u8] {
        self.card
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        let (theirs, below) = Card::read(card)?;
        let width = self.config.card_bytes as usize;
        if below.len() > width {
            return Err(Unreachable::Full);
        }
        let (at, reused) = match self.peers.free.first() {
            Some(at) => (at, true),
            None => (self.peers.touched, false),
        };
        if at as usize >= self.peers.paths.len() {
            return Err(Unreachable::Full);
        }
        let endpoint = self.below.add_peer(Peer(at), below)?;
        if reused {
            self.peers.free.pop();
        } else {
            self.peers.touched = self.peers.touched.wrapping_add(1);
        }
        self.peers.sessions = self.peers.sessions.wrapping_add(1);
        let (own, local) = (self.config.incarnation, self.peers.sessions);
        let seeds = [
            header::seed(&self.checksum, (own, 0), (theirs.incarnation, 0)),
            header::seed(&self.checksum, (theirs.incarnation, 0), (own, 0)),
        ];
        let start = start(at, width);
        if let Some(place) = self.peers.cards.get_mut(start..start.wrapping_add(width)) {
            copy_slice(place, below);
        }
        if let Some(path) = self.peers.paths.get_mut(at as usize) {
            let first = self.config.first_number;
            let (own, window) = (&self.config, self.config.window);
            path.zero();
            path.session = Session {
                hello_seeds: seeds,
                remote_incarnation: theirs.incarnation,
                local,
                peer: peer.0,
                state: ConnState::Idle,
                remote_link: theirs.link,
                checks_bodies: own.sums || theirs.sums,
                ..Session::new_zeroed()
            };
            path.below = Below { endpoint, card_len: below.len() as u16, known: true };
            (path.send.next, path.send.first, path.send.oldest, path.send.window) = (first, first, first, window);
            path.congestion = CongestionWindow::new(own.initial_window, window);
        }
        Ok(Endpoint(at))
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        self.delete_peer(endpoint, Kind::Goodbye);
    }

    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        self.reserve_frame(to, shape)
    }

    fn commit(&mut self, ticket: Ticket) -> Sent {
        self.commit_draft(ticket)
    }

    unsafe fn send(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        // SAFETY: passed on from the caller.
        unsafe { self.submit(to, None, shape, header, body, Some(cookie)) }
    }

    /// As [`send`](Rail::send): a link has a checksum of its own.
    unsafe fn send_summed(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        // SAFETY: passed on from the caller.
        unsafe { self.send(to, shape, header, body, cookie) }
    }

    fn drained(&self, to: Endpoint) -> bool {
        self.peers.paths.get(to.0 as usize).is_none_or(|path| {
            path.send.unacked == 0
                && (!path.below.known
                    || path.session.state == ConnState::Free
                    || self.below.drained(path.below.endpoint))
        })
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        self.tick(now);
        self.release_bad_bodies();
        if let Some(event) = self.next_event() {
            return Some(event);
        }
        self.send_waiting();
        self.work.turn = self.work.turn.wrapping_add(1);
        if self.work.turn.is_multiple_of(TIMER_TURNS) {
            self.run_timers();
        }
        if self.work.turn.is_multiple_of(TURNS) {
            self.send_acks();
        }
        self.work.more = true;
        for _ in 0..AT_ONCE {
            let Some(event) = self.below.poll(now) else {
                self.work.more = false;
                self.clock.on_idle();
                self.run_timers();
                self.send_acks();
                self.send_waiting(); // there may be room by now, and nothing wakes the caller again
                break;
            };
            if let Some(event) = self.on_below(event) {
                return Some(event);
            }
        }
        self.next_event()
    }

    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        self.read_held(frame, at, into)
    }

    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Cookie) -> Delivery {
        self.deliver_held(frame, skip, sink, cookie)
    }

    fn release(&mut self, frame: FrameId) {
        self.release_held(frame);
    }

    fn flush(&mut self) {
        self.send_waiting();
        self.below.flush();
    }

    fn poll_at(&self) -> Option<Instant> {
        let at_once = (self.has_events() || self.work.more).then_some(self.clock.now);
        let work = (!self.work.refused.is_empty()).then(|| self.work.retry_at.max(self.clock.now));
        let timer = if SEVERAL { self.work.timers.first() } else { self.deadline(0) };
        let own = [at_once, work, self.work.acks.first(), timer].into_iter().flatten().min().map(Instant::from_nanos);
        [own, self.below.poll_at()].into_iter().flatten().min()
    }

    // A caller that sleeps has to be woken by every frame, to acknowledge it.
    fn wake_on_demand(&mut self, _: bool) {}

    fn signal(&mut self, _: Endpoint) {}

    fn arm(&mut self) -> bool {
        if self.has_events() {
            return false;
        }
        // Frames that found no room just now are tried again when `poll_at` says, or when the rail below wakes the caller.
        if !self.work.refused.is_empty() && self.work.retry_at <= self.clock.now {
            return false;
        }
        self.below.arm()
    }
}

impl<R: FullRail, C: Checksum> FastPath for Link<'_, R, C> {
    unsafe fn send_now(&mut self, to: Endpoint, tag: u8, header: [u64; 3], body: Span) -> Result<Sent, SendError> {
        let bytes: [u8; 24] = zerocopy::transmute!(header.map(u64::to_le));
        let shape = Shape { tag, lane: Lane::Eager, header: 24, len: (body.len() as u32).wrapping_add(24) };
        // SAFETY: passed on from the caller; such a body is always copied.
        unsafe { self.submit(to, None, shape, &bytes, body, None) }
    }
}

impl<R: FullRail, C: Checksum> RequestCache for Link<'_, R, C> {
    fn request_init(&mut self, extra: &mut [u8]) {
        let _ = extra;
    }

    fn request_fini(&mut self, extra: &mut [u8]) {
        let _ = extra;
    }

    unsafe fn send_request(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
        extra: Option<&mut [u8]>,
    ) -> Result<Sent, SendError> {
        let _ = extra;
        // SAFETY: passed on from the caller.
        unsafe { self.submit(to, None, shape, header, body, Some(cookie)) }
    }
}

impl<R: FullRail, C: Checksum> SingleCopy for Link<'_, R, C> {
    /// Nothing: a single copy has neither a number nor a checksum.
    fn expose(&mut self, to: Endpoint, body: &Span) -> Option<RemoteBuffer> {
        let _ = (to, body);
        None
    }

    unsafe fn read_exposed(&mut self, from: Endpoint, buffer: &RemoteBuffer, sink: Span) -> bool {
        let _ = (from, buffer, sink);
        false
    }

    fn read_limit(&self, from: Endpoint) -> u64 {
        let _ = from;
        0
    }

    fn revoke_exposed(&mut self) {}
}

impl<R: FullRail, C: Checksum> DeviceMemory for Link<'_, R, C> {
    unsafe fn register(&mut self, base: *mut u8, len: usize, access: Access) -> Result<(Region, Key), NativeError> {
        // SAFETY: passed on from the caller.
        unsafe { self.below.register(base, len, access) }
    }

    fn deregister(&mut self, region: Region) {
        self.below.deregister(region);
    }

    /// The rail below performs the operation as it is. A device does each operation once, and the link cannot repeat any. When
    /// the link is down, the rail below has deleted the peer, and all its operations with it.
    unsafe fn perform(&mut self, on: Endpoint, native: &Native, cookie: Cookie) -> Result<Option<u64>, NativeError> {
        if !self.attributes.one_sided.any() {
            return Err(NativeError::NotAvailable);
        }
        let path =
            self.peers.paths.get(on.0 as usize).filter(|path| path.session.state == ConnState::Up && path.below.known);
        let Some(raw) = path.map(|path| path.below.endpoint) else {
            // As for a frame, the handshake comes first, so that each side knows that the memory belongs to the present session.
            let shape = Shape { tag: tags::BTL_BASE, lane: Lane::Control, header: 1, len: 1 };
            let connects = self.reserve_frame(on, shape).is_err_and(|error| error == SendError::Busy);
            return Err(if connects { NativeError::Busy } else { NativeError::Unreachable });
        };
        // SAFETY: passed on from the caller.
        unsafe { self.below.perform(raw, native, cookie) }
    }
}

impl<R: FullRail, C: Checksum> Failover for Link<'_, R, C> {
    fn next_unacked(&self, to: Endpoint) -> Option<UnackedFrame> {
        self.oldest_unacked(to)
    }

    fn migrated(&mut self, to: Endpoint, origin: Origin) {
        self.mark_migrated(to, origin);
    }

    unsafe fn send_migrated(
        &mut self,
        to: Endpoint,
        origin: Origin,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Option<Cookie>,
    ) -> Result<Sent, SendError> {
        // SAFETY: passed on from the caller.
        unsafe { self.submit(to, Some(origin), shape, header, body, cookie) }
    }

    fn claim(&mut self, from: Endpoint, origin: Origin) -> Option<Claim> {
        self.claim_frame(from, origin)
    }
}

impl<R: FullRail, C: Checksum> Liveness for Link<'_, R, C> {
    fn ask_host(&mut self, of: Endpoint) -> Option<Instant> {
        let path = self.peers.paths.get(of.0 as usize).filter(|path| path.below.known)?;
        self.below.ask_host(path.below.endpoint)
    }

    fn answered_since(&mut self, of: Endpoint, since: Option<Instant>) -> bool {
        self.peer_answered_since(of.0, since.map(Instant::as_nanos))
    }

    fn is_connected(&self, peer: Endpoint) -> bool {
        self.peers.paths.get(peer.0 as usize).is_some_and(|path| path.session.known_to_peer)
    }

    fn give_up(&mut self, to: Endpoint, what: GiveUp) -> bool {
        match what {
            GiveUp::Link => return self.give_up_silent(to.0),
            GiveUp::Peer => self.delete_peer(to, Kind::GivenUp),
        }
        true
    }
}

impl<R: FullRail, C: Checksum> Link<'_, R, C> {
    /// Whether the next poll has an event, or has to release a bad frame, without a poll of the rail below.
    fn has_events(&self) -> bool {
        (LATER && !self.send.done.is_empty())
            || (REPEATS && !self.receive.filled.is_empty())
            || !self.work.reports.is_empty()
            || (PARTIAL && self.receive.bad_body_found.get())
    }
}
