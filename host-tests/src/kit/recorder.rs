//! A rail that wraps any other one, records each call, and can refuse frames (CONTRACTS P35).

use std::cell::RefCell;
use std::rc::Rc;

use towline_core::convertor::Span;
use towline_core::forward_rail;
use towline_core::rail::{
    Attributes, Cookie, Delivery, DeviceMemory, Endpoint, Event, Failover, FastPath, FrameId, FullRail, Grant, Lane,
    Liveness, Origin, Peer, Rail, RequestCache, SendError, Sent, Shape, SingleCopy, Ticket, Unreachable,
};
use towline_core::time::Instant;
use towline_core::wire::{self, Kind};

/// The record of a rail.
#[derive(Clone, Default, Debug)]
pub struct Log {
    /// Accepted frames: lane and bytes. The content of a grant cannot be read back.
    pub sent: Vec<(Lane, u32)>,
    /// Frames that arrived: the kind in the engine's header, and bytes.
    pub arrived: Vec<(Option<Kind>, u32)>,
    /// Frames that were released, by a delivery or a release. Frames as short as a head are released at once.
    pub released: u64,
    /// How often the inner rail had no room.
    pub busy: u64,
    /// How often it had no room for a first fragment.
    pub busy_firsts: u64,
    /// Number of frames to refuse from now on, as if there were no room.
    pub refuse: u32,
    /// Events that are still to come: for bodies left in place, including migrated ones, and for deliveries.
    pub pending_reports: [u64; 2],
    /// Peers added, and their endpoints.
    pub peers: Vec<(Peer, Endpoint)>,
}

impl Log {
    /// Frames of a kind that arrived.
    pub fn count(&self, kind: Kind) -> usize {
        self.arrived.iter().filter(|frame| frame.0 == Some(kind)).count()
    }

    fn is_busy(&mut self, lane: Lane) {
        self.busy += 1;
        self.busy_firsts += u64::from(lane == Lane::Eager);
    }

    /// First fragments that arrived.
    pub fn firsts(&self) -> usize {
        self.count(Kind::Match) + self.count(Kind::Rendezvous)
    }

    /// Bytes of later fragments that arrived, headers included.
    pub fn bulk(&self) -> u64 {
        self.arrived.iter().filter(|frame| frame.0 == Some(Kind::Fragment)).map(|frame| u64::from(frame.1)).sum()
    }
}

/// The rail that wraps `inner`.
pub struct Recorder<R> {
    inner: R,
    attributes: Attributes,
    log: Rc<RefCell<Log>>,
    /// The lane of the current grant.
    lane: Lane,
}

impl<R: FullRail> Recorder<R> {
    /// Wraps `inner`. `change` may change its attributes.
    pub fn new(inner: R, change: impl FnOnce(&mut Attributes)) -> Self {
        let mut attributes = *inner.attributes();
        change(&mut attributes);
        Self { inner, attributes, log: Rc::default(), lane: Lane::Control }
    }

    /// The record so far. It is shared, so that it can be read while an engine owns the rail.
    pub fn log(&self) -> Rc<RefCell<Log>> {
        self.log.clone()
    }

    /// The wrapped rail.
    pub const fn inner(&self) -> &R {
        &self.inner
    }

    fn refused(&self) -> bool {
        let mut log = self.log.borrow_mut();
        let refuse = log.refuse > 0;
        log.refuse -= u32::from(refuse);
        refuse
    }

    fn note(&self, lane: Lane, len: u32, answer: &Result<Sent, SendError>) {
        let mut log = self.log.borrow_mut();
        match answer {
            Ok(sent) => {
                log.sent.push((lane, len));
                log.pending_reports[0] += u64::from(*sent == Sent::InPlace);
            }
            Err(SendError::Busy) => log.is_busy(lane),
            Err(_) => {}
        }
    }
}

/// Calls the inner rail.
macro_rules! inner {
    ($self:expr, $rail:ident => $call:expr) => {
        match $self {
            Self { inner: $rail, .. } => $call,
        }
    };
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> Rail for Recorder<R> {
    forward_rail!(inner, except attributes, add_peer, reserve, commit, send, send_summed, poll, deliver, release);

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        let endpoint = self.inner.add_peer(peer, card)?;
        self.log.borrow_mut().peers.push((peer, endpoint));
        Ok(endpoint)
    }

    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        if self.refused() {
            return Err(SendError::Busy);
        }
        self.lane = shape.lane;
        let log = &self.log;
        let grant = self.inner.reserve(to, shape);
        if grant.as_ref().is_err_and(|error| *error == SendError::Busy) {
            log.borrow_mut().is_busy(shape.lane);
        }
        grant
    }

    fn commit(&mut self, ticket: Ticket) -> Sent {
        self.log.borrow_mut().sent.push((self.lane, ticket.len));
        self.inner.commit(ticket)
    }

    unsafe fn send(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        if self.refused() {
            return Err(SendError::Busy);
        }
        // SAFETY: passed on from the caller.
        let answer = unsafe { self.inner.send(to, shape, header, body, cookie) };
        self.note(shape.lane, shape.len, &answer);
        answer
    }

    unsafe fn send_summed(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        if self.refused() {
            return Err(SendError::Busy);
        }
        // SAFETY: passed on from the caller.
        let answer = unsafe { self.inner.send_summed(to, shape, header, body, cookie) };
        self.note(shape.lane, shape.len, &answer);
        answer
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        let event = self.inner.poll(now);
        let mut log = self.log.borrow_mut();
        match &event {
            Some(Event::Frame(frame) | Event::Migrated(_, frame)) => {
                log.arrived.push((wire::kind(frame.head()), frame.len));
                log.released += u64::from(frame.is_whole());
            }
            Some(Event::Sent(_)) => {
                log.pending_reports[0] =
                    log.pending_reports[0].checked_sub(1).expect("a body left in place is reported once")
            }
            Some(Event::Delivered(_)) => {
                log.pending_reports[1] = log.pending_reports[1].checked_sub(1).expect("a delivery is reported once")
            }
            Some(Event::Lost(..) | Event::Down(..) | Event::Up(_) | Event::Silent(..) | Event::Performed(..))
            | None => {}
        }
        drop(log);
        event
    }

    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Cookie) -> Delivery {
        // SAFETY: passed on from the caller.
        let delivery = unsafe { self.inner.deliver(frame, skip, sink, cookie) };
        let mut log = self.log.borrow_mut();
        log.released += 1;
        log.pending_reports[1] += u64::from(delivery == Delivery::Pending);
        delivery
    }

    fn release(&mut self, frame: FrameId) {
        self.log.borrow_mut().released += 1;
        self.inner.release(frame);
    }
}

// The defaults: `reserve`, `commit` and `poll` record what they see.
impl<R: FullRail> FastPath for Recorder<R> {}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> RequestCache for Recorder<R> {
    forward_rail!(RequestCache: inner, except send_request);

    unsafe fn send_request(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
        extra: Option<&mut [u8]>,
    ) -> Result<Sent, SendError> {
        if self.refused() {
            return Err(SendError::Busy);
        }
        // SAFETY: passed on from the caller.
        let answer = unsafe { self.inner.send_request(to, shape, header, body, cookie, extra) };
        self.note(shape.lane, shape.len, &answer);
        answer
    }
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> SingleCopy for Recorder<R> {
    forward_rail!(SingleCopy: inner);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> DeviceMemory for Recorder<R> {
    forward_rail!(DeviceMemory: inner);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> Failover for Recorder<R> {
    forward_rail!(Failover: inner, except migrated, send_migrated);

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
        let answer = unsafe { self.inner.send_migrated(to, origin, shape, header, body, cookie) };
        self.note(shape.lane, shape.len, &answer);
        answer
    }

    fn migrated(&mut self, to: Endpoint, origin: Origin) {
        let in_place = self.inner.next_unacked(to).is_some_and(|orphan| orphan.cookie.is_some());
        self.log.borrow_mut().pending_reports[0] -= u64::from(in_place);
        self.inner.migrated(to, origin);
    }
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> Liveness for Recorder<R> {
    forward_rail!(Liveness: inner);
}
