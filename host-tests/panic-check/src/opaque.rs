//! A rail that is opaque to the optimiser: it returns any result at any time. Code that cannot panic over this rail cannot
//! panic over any rail.

use towline_core::convertor::Span;
use towline_core::rail::access::Access;
use towline_core::rail::native::{KEY, Key, Native, NativeError, OneSided, Region};
use towline_core::rail::{
    AcceleratorLimits, Attributes, Capabilities, Claim, Cookie, Delivery, DeviceMemory, Endpoint, Event, Failover,
    FastPath, Frame, FrameId, GiveUp, Grant, HEAD, LINKED_HEAD, Lane, Liveness, Lost, Origin, Peer,
    REMOTE_BUFFER_BYTES, Rail, RemoteBuffer, RequestCache, SendError, Sent, Shape, SingleCopy, Ticket, UnackedFrame,
    Unreachable,
};
use towline_core::time::Instant;

use crate::{any, keep};

/// A rail that is opaque to the optimiser. See the [module](self).
#[derive(Debug)]
pub struct Opaque;

static ATTRIBUTES: Attributes = Attributes {
    name: "opaque",
    capabilities: Capabilities::SEND,
    exclusivity: 0,
    latency: 0,
    bandwidth: 0,
    eager_limit: 0,
    rendezvous_eager_limit: 0,
    min_fragment: 0,
    max_send_size: 0,
    cache_size: 0,
    cache_bytes: 0,
    accelerator: AcceleratorLimits::NONE,
    frames_kept: 0,
    one_sided: OneSided::NONE,
};

fn some<T>(value: T) -> Option<T> {
    if any(false) { Some(any(value)) } else { None }
}

fn frame() -> Frame {
    Frame { id: FrameId(any(0)), from: Peer(any(0)), tag: any(0), valid: any(0), len: any(0), head: any([0; HEAD]) }
}

fn origin() -> Origin {
    Origin { link: any(0), number: any(0) }
}

fn span() -> Span {
    Span::contiguous(any(core::ptr::null_mut()), any(0))
}

fn result<T, E>(value: T, error: E) -> Result<T, E> {
    if any(false) { Ok(any(value)) } else { Err(any(error)) }
}

impl Rail for Opaque {
    fn attributes(&self) -> &Attributes {
        any(&ATTRIBUTES)
    }

    fn card(&self) -> &[u8] {
        any(&[])
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        keep((peer, card));
        result(Endpoint(0), Unreachable::Full)
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        keep(endpoint);
    }

    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        keep((to, shape));
        let ticket = Ticket { endpoint: any(to), position: any(0), len: any(0), extra: any(0) };
        // SAFETY: never run; for the linker only.
        result(unsafe { Grant::new(any(core::ptr::null_mut()), any(0), ticket) }, SendError::Busy)
    }

    fn commit(&mut self, ticket: Ticket) -> Sent {
        keep(ticket);
        any(Sent::Done)
    }

    unsafe fn send(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        keep((to, shape, header, body, cookie));
        result(Sent::Done, SendError::Busy)
    }

    unsafe fn send_summed(
        &mut self,
        to: Endpoint,
        shape: Shape,
        header: &[u8],
        body: Span,
        cookie: Cookie,
    ) -> Result<Sent, SendError> {
        keep((to, shape, header, body, cookie));
        result(any(Sent::InPlace), any(SendError::Busy))
    }

    fn drained(&self, to: Endpoint) -> bool {
        keep(to);
        any(true)
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        keep(now);
        some(match any(0) {
            0 => Event::Sent(Cookie(any(0))),
            1 => Event::Delivered(Cookie(any(0))),
            2 => Event::Lost(Peer(any(0)), any(Lost::Broken)),
            3 => Event::Down(Peer(any(0)), any(Lost::Broken)),
            4 => Event::Up(Peer(any(0))),
            5 => Event::Migrated(origin(), frame()),
            6 => Event::Silent(Peer(any(0)), some(Instant::from_nanos(any(0)))),
            7 => Event::Performed(Cookie(any(0)), result(0, NativeError::Busy)),
            _ => Event::Frame(frame()),
        })
    }

    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        keep((frame, at, into));
        any(0)
    }

    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Cookie) -> Delivery {
        keep((frame, skip, sink, cookie));
        any(Delivery::Done)
    }

    fn release(&mut self, frame: FrameId) {
        keep(frame);
    }

    fn flush(&mut self) {
        keep(());
    }

    fn poll_at(&self) -> Option<Instant> {
        some(Instant::ZERO)
    }

    fn arm(&mut self) -> bool {
        any(true)
    }
}

impl RequestCache for Opaque {
    fn request_init(&mut self, extra: &mut [u8]) {
        keep(extra);
    }

    fn request_fini(&mut self, extra: &mut [u8]) {
        keep(extra);
    }
}

impl SingleCopy for Opaque {
    fn expose(&mut self, to: Endpoint, body: &Span) -> Option<RemoteBuffer> {
        keep((to, body));
        some(RemoteBuffer(any([0; REMOTE_BUFFER_BYTES])))
    }

    unsafe fn read_exposed(&mut self, from: Endpoint, remote: &RemoteBuffer, sink: Span) -> bool {
        keep((from, remote, sink));
        any(true)
    }

    fn read_limit(&self, from: Endpoint) -> u64 {
        keep(from);
        any(0)
    }

    fn revoke_exposed(&mut self) {
        keep(());
    }
}

impl DeviceMemory for Opaque {
    unsafe fn register(&mut self, base: *mut u8, len: usize, access: Access) -> Result<(Region, Key), NativeError> {
        keep((base, len, access));
        result((Region(0), Key([0; KEY])), NativeError::Busy)
    }

    fn deregister(&mut self, region: Region) {
        keep(region);
    }

    unsafe fn perform(&mut self, on: Endpoint, native: &Native, cookie: Cookie) -> Result<Option<u64>, NativeError> {
        keep((on, native, cookie));
        result(some(0), NativeError::Busy)
    }
}

impl Failover for Opaque {
    fn next_unacked(&self, to: Endpoint) -> Option<UnackedFrame> {
        keep(to);
        let shape = Shape { tag: any(0), lane: any(Lane::Eager), header: any(0), len: any(0) };
        some(UnackedFrame {
            origin: origin(),
            shape,
            header: [any(0); LINKED_HEAD],
            body: span(),
            cookie: some(Cookie(any(0))),
        })
    }

    fn migrated(&mut self, to: Endpoint, origin: Origin) {
        keep((to, origin));
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
        keep((to, origin, shape, header, body, cookie));
        result(any(Sent::InPlace), any(SendError::Busy))
    }

    fn claim(&mut self, from: Endpoint, origin: Origin) -> Option<Claim> {
        keep((from, origin));
        some(match any(0) {
            0 => Claim::New,
            1 => Claim::Duplicate,
            _ => Claim::Awaited { skip: any(0), sink: span(), cookie: Cookie(any(0)) },
        })
    }
}

impl Liveness for Opaque {
    fn ask_host(&mut self, of: Endpoint) -> Option<Instant> {
        keep(of);
        some(Instant::from_nanos(any(0)))
    }

    fn answered_since(&mut self, of: Endpoint, since: Option<Instant>) -> bool {
        keep((of, since));
        any(true)
    }

    fn is_connected(&self, peer: Endpoint) -> bool {
        keep(peer);
        any(true)
    }

    fn give_up(&mut self, to: Endpoint, scope: GiveUp) -> bool {
        keep((to, scope));
        any(true)
    }

    fn has_closed(&mut self, of: Endpoint) -> bool {
        keep(of);
        any(true)
    }
}

impl FastPath for Opaque {}
