//! A link as a rail.

use zerocopy::FromZeros;

use super::card::Card;
use super::checksum::Checksum;
use super::congestion::Window;
use super::header::{self, Kind};
use super::path::{Path, State};
use super::state::Link;
use crate::convertor::Span;
use crate::rail::access::Access;
use crate::rail::native::{Key, Native, NativeError, Region};
use crate::rail::tags;
use crate::rail::{
    Attributes, Claim, Cookie, Delivery, Endpoint, Event, FrameId, FullRail, GiveUp, Grant, Lane, Origin, Peer, Rail,
    SendError, Sent, Shape, Ticket, UnackedFrame, Unreachable,
};
use crate::time::Instant;

/// Events of the raw rail that are dealt with in one poll before the caller has its turn.
const AT_ONCE: u32 = 64;
/// Polls after which acknowledgements leave although the raw rail is never idle; and after which timers are looked at, which
/// is better done when all that came has been heard.
const TURNS: u32 = 16;
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
        let (at, reused) = match self.free.first() {
            Some(at) => (at, true),
            None => (self.touched, false),
        };
        if at as usize >= self.paths.len() {
            return Err(Unreachable::Full);
        }
        let raw = self.raw.add_peer(Peer(at), below)?;
        if reused {
            self.free.pop();
        } else {
            self.touched = self.touched.wrapping_add(1);
        }
        self.sessions = self.sessions.wrapping_add(1);
        let (own, mine) = (self.config.incarnation, self.sessions);
        let seeds = [
            header::seed(&self.sums, (own, 0), (theirs.incarnation, 0)),
            header::seed(&self.sums, (theirs.incarnation, 0), (own, 0)),
        ];
        let start = (at as usize).wrapping_mul(width);
        if let Some(place) = self.cards.get_mut(start..start.wrapping_add(width)) {
            place.iter_mut().zip(below).for_each(|(to, from)| *to = *from);
        }
        if let Some(path) = self.paths.get_mut(at as usize) {
            let first = self.config.first_number;
            *path = Path {
                state: State::Quiet,
                their_link: theirs.link,
                raw_known: true,
                sums: self.config.sums || theirs.sums,
                raw,
                peer: peer.0,
                card_len: below.len() as u16,
                hello_seeds: seeds,
                their_incarnation: theirs.incarnation,
                mine,
                next: first,
                first,
                oldest: first,
                window: self.config.window,
                congestion: Window::new(self.config.initial_window, self.config.window),
                ..Path::new_zeroed()
            };
        }
        Ok(Endpoint(at))
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        self.forget(endpoint, Kind::Bye);
    }

    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        self.draft(to, shape)
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
        unsafe { self.give(to, None, shape, header, body, Some(cookie)) }
    }

    /// A link tells a sum of its own.
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
        self.paths.get(to.0 as usize).is_none_or(|path| {
            path.kept == 0 && (!path.raw_known || path.state == State::Free || self.raw.drained(path.raw))
        })
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        self.tick(now);
        self.give_back_spoilt();
        if let Some(event) = self.next_told() {
            return Some(event);
        }
        self.do_work();
        self.turn = self.turn.wrapping_add(1);
        if self.turn.is_multiple_of(TIMER_TURNS) {
            self.run_timers();
        }
        if self.turn.is_multiple_of(TURNS) {
            self.send_acks();
        }
        self.more = true;
        for _ in 0..AT_ONCE {
            let Some(event) = self.raw.poll(now) else {
                (self.more, self.heard_all, self.listened) = (false, self.now, 0);
                self.run_timers();
                self.send_acks();
                self.do_work(); // there may be room by now, of which nobody is woken again
                break;
            };
            if let Some(event) = self.on_raw(event) {
                return Some(event);
            }
        }
        self.next_told()
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
        self.do_work();
        self.raw.flush();
    }

    fn poll_at(&self) -> Option<Instant> {
        let told = !(self.done.is_empty() && self.filled.is_empty() && self.reports.is_empty());
        let at_once = (told || self.more || self.spoilt.get()).then_some(self.now);
        let work = (!self.work.is_empty()).then(|| self.work_due.max(self.now));
        let own = [at_once, work, self.acks.first(), self.timers.first()]
            .into_iter()
            .flatten()
            .min()
            .map(Instant::from_nanos);
        [own, self.raw.poll_at()].into_iter().flatten().min()
    }

    // Who sleeps has to hear of every frame, to acknowledge it.
    fn wake_on_demand(&mut self, _: bool) {}

    fn signal(&mut self, _: Endpoint) {}

    fn arm(&mut self) -> bool {
        if !(self.done.is_empty() && self.filled.is_empty() && self.reports.is_empty()) || self.spoilt.get() {
            return false;
        }
        // What found no room just now is tried again when `poll_at` says, or when the rail below wakes the caller.
        if !self.work.is_empty() && self.work_due <= self.now {
            return false;
        }
        self.raw.arm()
    }
}

impl<R: FullRail, C: Checksum> crate::rail::FastPath for Link<'_, R, C> {
    unsafe fn send_now(&mut self, to: Endpoint, tag: u8, header: [u64; 3], body: Span) -> Result<Sent, SendError> {
        let bytes: [u8; 24] = zerocopy::transmute!(header.map(u64::to_le));
        let shape = Shape { tag, lane: Lane::Eager, header: 24, len: (body.len() as u32).wrapping_add(24) };
        // SAFETY: passed on from the caller; such a body is always copied.
        unsafe { self.give(to, None, shape, &bytes, body, None) }
    }

    fn poll_short(&mut self, _tag: u8) -> Option<crate::rail::Short> {
        None
    }

    fn poll_again(&mut self) -> Option<crate::rail::Frame> {
        None
    }
}

impl<R: FullRail, C: Checksum> crate::rail::RequestCache for Link<'_, R, C> {
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
        unsafe { self.give(to, None, shape, header, body, Some(cookie)) }
    }
}

impl<R: FullRail, C: Checksum> crate::rail::SingleCopy for Link<'_, R, C> {
    /// What is fetched has neither number nor check.
    fn expose(&mut self, to: Endpoint, body: &Span) -> Option<crate::rail::RemoteBuffer> {
        let _ = (to, body);
        None
    }

    unsafe fn read_exposed(&mut self, from: Endpoint, loan: &crate::rail::RemoteBuffer, sink: Span) -> bool {
        let _ = (from, loan, sink);
        false
    }

    fn read_limit(&self, from: Endpoint) -> u64 {
        let _ = from;
        0
    }

    fn revoke_exposed(&mut self) {}
}

impl<R: FullRail, C: Checksum> crate::rail::DeviceMemory for Link<'_, R, C> {
    unsafe fn register(&mut self, base: *mut u8, len: usize, access: Access) -> Result<(Region, Key), NativeError> {
        // SAFETY: passed on from the caller.
        unsafe { self.raw.register(base, len, access) }
    }

    fn deregister(&mut self, region: Region) {
        self.raw.deregister(region);
    }

    /// By the rail below, as it is: what it does by itself it does once, and nothing of it can be sent again. When the link is
    /// down that rail has forgotten the peer, and all of it.
    unsafe fn perform(&mut self, on: Endpoint, native: &Native, cookie: Cookie) -> Result<Option<u64>, NativeError> {
        if !self.attributes.one_sided.any() {
            return Err(NativeError::NotAvailable);
        }
        let path = self.paths.get(on.0 as usize).filter(|path| path.state == State::Up && path.raw_known);
        let Some(raw) = path.map(|path| path.raw) else {
            // As for a frame: the two have to meet first, so that both know whose memory it is about.
            let shape = Shape { tag: tags::BTL_BASE, lane: Lane::Control, header: 1, len: 1 };
            let meets = self.draft(on, shape).is_err_and(|why| why == SendError::Busy);
            return Err(if meets { NativeError::Busy } else { NativeError::Unreachable });
        };
        // SAFETY: passed on from the caller.
        unsafe { self.raw.perform(raw, native, cookie) }
    }
}

impl<R: FullRail, C: Checksum> crate::rail::Failover for Link<'_, R, C> {
    fn next_unacked(&self, to: Endpoint) -> Option<UnackedFrame> {
        self.orphan_of(to)
    }

    fn migrated(&mut self, to: Endpoint, origin: Origin) {
        self.rehome(to, origin);
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
        unsafe { self.give(to, Some(origin), shape, header, body, cookie) }
    }

    fn claim(&mut self, from: Endpoint, origin: Origin) -> Option<Claim> {
        self.claim_of(from, origin)
    }
}

impl<R: FullRail, C: Checksum> crate::rail::Liveness for Link<'_, R, C> {
    fn ask_host(&mut self, of: Endpoint) -> Option<Instant> {
        let path = self.paths.get(of.0 as usize).filter(|path| path.raw_known)?;
        self.raw.ask_host(path.raw)
    }

    fn hears(&mut self, of: Endpoint, since: Option<Instant>) -> bool {
        self.hears_peer(of.0, since.map(Instant::as_nanos))
    }

    fn knows(&self, peer: Endpoint) -> bool {
        self.paths.get(peer.0 as usize).is_some_and(|path| path.known)
    }

    fn give_up(&mut self, to: Endpoint, what: GiveUp) -> bool {
        match what {
            GiveUp::Link => return self.give_up_silent(to.0),
            GiveUp::Peer => self.forget(to, Kind::GivenUp),
        }
        true
    }
}
