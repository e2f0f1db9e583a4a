//! The rails of a process, in one type.

use towline_core::btl::loopback;
use towline_core::btl::{
    Attributes, Cookie, Delivery, Endpoint, Event, FrameId, Grant, Loan, Peer, Rail, SendError, Sent, Shape, Ticket,
    Unreachable,
};
use towline_core::convertor::Span;
use towline_core::pml::Rails;
use towline_core::time::Instant;

/// Any rail. The known ones are dispatched to by a match, so that their calls can be inlined on the message path; others
/// come in the box.
#[derive(Debug)]
#[non_exhaustive]
// A rail is made once and never moved on the message path; a box for the larger ones would cost a load each time.
#[allow(clippy::large_enum_variant)]
pub enum AnyRail {
    /// The process itself.
    Loopback(loopback::Rail<'static>),
    /// Other processes of the host.
    Sm(towline_sm::Rail),
    /// One TCP link.
    Tcp(towline_tcp::Rail),
    /// A rail that somebody else wrote: see [`Builder::rail`](crate::Builder::rail).
    Dyn(DynRail),
}

/// A rail of which nothing is known but the trait.
pub struct DynRail(pub(crate) Box<dyn Rail>);

impl std::fmt::Debug for DynRail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DynRail").field(&self.0.attributes().name).finish()
    }
}

macro_rules! each {
    ($self:expr, $rail:ident => $call:expr) => {
        match $self {
            AnyRail::Sm($rail) => $call,
            AnyRail::Tcp($rail) => $call,
            AnyRail::Loopback($rail) => $call,
            AnyRail::Dyn(DynRail($rail)) => $call,
        }
    };
}

impl Rail for AnyRail {
    #[inline]
    fn attributes(&self) -> &Attributes {
        each!(self, rail => rail.attributes())
    }

    fn card(&self) -> &[u8] {
        each!(self, rail => rail.card())
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        each!(self, rail => rail.add_peer(peer, card))
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        each!(self, rail => rail.del_peer(endpoint));
    }

    #[inline]
    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        each!(self, rail => rail.reserve(to, shape))
    }

    #[inline]
    fn commit(&mut self, ticket: Ticket) -> Sent {
        each!(self, rail => rail.commit(ticket))
    }

    #[inline]
    unsafe fn send(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        // SAFETY: passed on from the caller.
        each!(self, rail => unsafe { rail.send(to, shape, header, body, cookie) })
    }

    fn request_init(&mut self, extra: &mut [u8]) {
        each!(self, rail => rail.request_init(extra));
    }

    fn request_fini(&mut self, extra: &mut [u8]) {
        each!(self, rail => rail.request_fini(extra));
    }

    #[inline]
    unsafe fn send_request(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
        extra: Option<&mut [u8]>,
    ) -> Result<Sent, SendError> {
        // SAFETY: passed on from the caller.
        each!(self, rail => unsafe { rail.send_request(to, shape, header, body, cookie, extra) })
    }

    fn lend(&mut self, to: Endpoint, body: &Span) -> Option<Loan> {
        each!(self, rail => rail.lend(to, body))
    }

    unsafe fn fetch(&mut self, from: Endpoint, loan: &Loan, sink: Span) -> bool {
        // SAFETY: passed on from the caller.
        each!(self, rail => unsafe { rail.fetch(from, loan, sink) })
    }

    #[inline]
    fn drained(&self, to: Endpoint) -> bool {
        each!(self, rail => rail.drained(to))
    }

    #[inline]
    fn poll(&mut self, now: Instant) -> Option<Event> {
        each!(self, rail => rail.poll(now))
    }

    #[inline]
    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        each!(self, rail => rail.read(frame, at, into))
    }

    #[inline]
    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Cookie) -> Delivery {
        // SAFETY: passed on from the caller.
        each!(self, rail => unsafe { rail.deliver(frame, skip, sink, cookie) })
    }

    #[inline]
    fn release(&mut self, frame: FrameId) {
        each!(self, rail => rail.release(frame));
    }

    fn poll_at(&self) -> Option<Instant> {
        each!(self, rail => rail.poll_at())
    }

    fn arm(&mut self) -> bool {
        each!(self, rail => rail.arm())
    }
}

/// The rails that an engine uses, in the order in which it polls them.
#[derive(Debug, Default)]
pub(crate) struct RailSet(pub Vec<AnyRail>);

impl Rails for RailSet {
    type Rail = AnyRail;

    #[inline]
    fn count(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn rail(&self, index: usize) -> Option<&AnyRail> {
        self.0.get(index)
    }

    #[inline]
    fn rail_mut(&mut self, index: usize) -> Option<&mut AnyRail> {
        self.0.get_mut(index)
    }
}
