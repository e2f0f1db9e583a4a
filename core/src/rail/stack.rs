//! Rails that wrap other rails (`ptl_stack`, CONTRACTS P35): [`Tuned`] changes the attributes of another rail, [`Traced`]
//! shows each call to an observer, and [`Placed`] refers to a rail in its own place. [`forward_rail!`](crate::forward_rail) writes the methods that they only pass on. A link,
//! and a simulator's rail with faults, wrap a rail in the same way.
//!
//! ```
//! use towline_core::arena::Arena;
//! use towline_core::rail::stack::{Call, Traced, Tuned};
//! use towline_core::rail::{Peer, Rail, loopback::Hub};
//! use towline_core::time::Instant;
//!
//! let mut block = [0u8; 2048];
//! let hub = Hub::new(&mut Arena::new(&mut block), 1, 4, 128).unwrap();
//! let slower = Tuned::new(hub.rail(0).unwrap(), |attributes| attributes.bandwidth /= 2);
//! let mut polls = 0;
//! let mut traced = Traced::new(slower, |call: Call| polls += u32::from(matches!(call, Call::Poll(_))));
//! traced.poll(Instant::ZERO);
//! assert_eq!(traced.attributes().bandwidth, 5_000);
//! drop(traced);
//! assert_eq!(polls, 1);
//! ```

use crate::convertor::Span;
use crate::rail::{
    Attributes, Cookie, Delivery, DeviceMemory, Endpoint, Event, Failover, FastPath, FrameId, FullRail, GiveUp, Grant,
    Liveness, Peer, Rail, RequestCache, SendError, Sent, Shape, SingleCopy, Ticket, Unreachable,
};
use crate::time::Instant;

/// A rail with changed attributes, such as those that a user has set.
#[derive(Clone, Debug)]
pub struct Tuned<R> {
    rail: R,
    attributes: Attributes,
}

impl<R: FullRail> Tuned<R> {
    /// The rail with its attributes changed by `tune`. Limits may be lowered, not raised: the rail below still refuses a frame
    /// that is longer than its own limit.
    pub fn new(rail: R, tune: impl FnOnce(&mut Attributes)) -> Self {
        let mut attributes = *rail.attributes();
        tune(&mut attributes);
        Self { rail, attributes }
    }
}

/// A rail that stays in memory of its own, for a set of rails that is moved. Firmware with a small stack puts a link to its place, and
/// gives the engine this.
///
/// ```
/// use towline_core::arena::Arena;
/// use towline_core::rail::{Rail, loopback::Hub, stack::Placed};
///
/// let mut block = [0u8; 2048];
/// let hub = Hub::new(&mut Arena::new(&mut block), 1, 4, 128).unwrap();
/// let mut place = hub.rail(0).unwrap();
/// let placed = Placed { rail: &mut place };
/// assert_eq!(placed.attributes().name, "loopback");
/// assert_eq!(placed.rail.card(), [0; 4]);
/// ```
#[derive(Debug)]
pub struct Placed<'p, R> {
    /// The rail.
    pub rail: &'p mut R,
}

/// A call that [`Traced`] shows to its observer before it calls the rail below. A summed send or a request's send is a `Send`;
/// giving a peer up is a `DelPeer`.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[allow(missing_docs)]
pub enum Call {
    AddPeer(Peer),
    DelPeer(Endpoint),
    Reserve(Endpoint, Shape),
    Commit(Ticket),
    Send(Endpoint, Shape, Cookie),
    RequestInit,
    RequestFini,
    Poll(Instant),
    Deliver(FrameId),
    Release(FrameId),
    Arm,
}

/// A rail that shows its calls to an observer.
#[derive(Debug)]
pub struct Traced<R, O> {
    rail: R,
    observer: O,
}

impl<R: FullRail, O: FnMut(Call)> Traced<R, O> {
    /// The rail, with an observer.
    pub const fn new(rail: R, observer: O) -> Self {
        Self { rail, observer }
    }
}

/// Evaluates a call with the rail below, for `forward_rail!`.
macro_rules! below {
    ($self:expr, $rail:ident => $call:expr) => {
        match $self {
            Self { rail: $rail, .. } => $call,
        }
    };
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> Rail for Tuned<R> {
    crate::forward_rail!(below, except attributes);

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> FastPath for Tuned<R> {
    crate::forward_rail!(FastPath: below);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> RequestCache for Tuned<R> {
    crate::forward_rail!(RequestCache: below);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> SingleCopy for Tuned<R> {
    crate::forward_rail!(SingleCopy: below);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> DeviceMemory for Tuned<R> {
    crate::forward_rail!(DeviceMemory: below);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> Failover for Tuned<R> {
    crate::forward_rail!(Failover: below);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> Liveness for Tuned<R> {
    crate::forward_rail!(Liveness: below);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> Rail for Placed<'_, R> {
    crate::forward_rail!(below);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> FastPath for Placed<'_, R> {
    crate::forward_rail!(FastPath: below);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> RequestCache for Placed<'_, R> {
    crate::forward_rail!(RequestCache: below);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> SingleCopy for Placed<'_, R> {
    crate::forward_rail!(SingleCopy: below);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> DeviceMemory for Placed<'_, R> {
    crate::forward_rail!(DeviceMemory: below);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> Failover for Placed<'_, R> {
    crate::forward_rail!(Failover: below);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail> Liveness for Placed<'_, R> {
    crate::forward_rail!(Liveness: below);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail, O: FnMut(Call)> Rail for Traced<R, O> {
    crate::forward_rail!(below, except add_peer, del_peer, reserve, commit, send, send_summed, poll, deliver, release, arm);

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        (self.observer)(Call::AddPeer(peer));
        self.rail.add_peer(peer, card)
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        (self.observer)(Call::DelPeer(endpoint));
        self.rail.del_peer(endpoint);
    }

    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        (self.observer)(Call::Reserve(to, shape));
        self.rail.reserve(to, shape)
    }

    fn commit(&mut self, ticket: Ticket) -> Sent {
        (self.observer)(Call::Commit(ticket));
        self.rail.commit(ticket)
    }

    unsafe fn send(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        (self.observer)(Call::Send(to, shape, cookie));
        // SAFETY: passed on from the caller.
        unsafe { self.rail.send(to, shape, header, body, cookie) }
    }

    unsafe fn send_summed(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        (self.observer)(Call::Send(to, shape, cookie));
        // SAFETY: passed on from the caller.
        unsafe { self.rail.send_summed(to, shape, header, body, cookie) }
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        (self.observer)(Call::Poll(now));
        self.rail.poll(now)
    }

    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Cookie) -> Delivery {
        (self.observer)(Call::Deliver(frame));
        // SAFETY: passed on from the caller.
        unsafe { self.rail.deliver(frame, skip, sink, cookie) }
    }

    fn release(&mut self, frame: FrameId) {
        (self.observer)(Call::Release(frame));
        self.rail.release(frame);
    }

    fn arm(&mut self) -> bool {
        (self.observer)(Call::Arm);
        self.rail.arm()
    }
}

// The defaults, so that the observer sees each reservation, commit and poll.
impl<R: FullRail, O: FnMut(Call)> FastPath for Traced<R, O> {}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail, O: FnMut(Call)> RequestCache for Traced<R, O> {
    crate::forward_rail!(RequestCache: below, except request_init, request_fini, send_request);

    fn request_init(&mut self, extra: &mut [u8]) {
        (self.observer)(Call::RequestInit);
        self.rail.request_init(extra);
    }

    fn request_fini(&mut self, extra: &mut [u8]) {
        (self.observer)(Call::RequestFini);
        self.rail.request_fini(extra);
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
        (self.observer)(Call::Send(to, shape, cookie));
        // SAFETY: passed on from the caller.
        unsafe { self.rail.send_request(to, shape, header, body, cookie, extra) }
    }
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail, O: FnMut(Call)> SingleCopy for Traced<R, O> {
    crate::forward_rail!(SingleCopy: below);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail, O: FnMut(Call)> DeviceMemory for Traced<R, O> {
    crate::forward_rail!(DeviceMemory: below);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail, O: FnMut(Call)> Failover for Traced<R, O> {
    crate::forward_rail!(Failover: below);
}

#[deny(clippy::missing_trait_methods)]
impl<R: FullRail, O: FnMut(Call)> Liveness for Traced<R, O> {
    crate::forward_rail!(Liveness: below, except give_up);

    fn give_up(&mut self, to: Endpoint, what: GiveUp) -> bool {
        if what == GiveUp::Peer {
            (self.observer)(Call::DelPeer(to));
        }
        self.rail.give_up(to, what)
    }
}
