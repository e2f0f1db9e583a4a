//! Windows over rails of the test's own: one that accepts all frames and delivers none, and one whose bodies arrive late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use towline::{AtomicOp, Builder, Error, Multiple, Rail, Shortage, Window, World};
use towline_core::arena::Arena;
use towline_core::convertor::Span;
use towline_core::rail::attributes::EXCLUSIVITY_HIGH;
use towline_core::rail::loopback::{self, Hub};
use towline_core::rail::{
    Attributes, Capabilities, Cookie, Delivery, DeviceMemory, Endpoint, Event, Failover, FastPath, FrameId, Grant,
    Liveness, Peer, RequestCache, SendError, Sent, Shape, SingleCopy, Ticket, Unreachable,
};
use towline_core::time::Instant;

/// Attributes that make a rail preferred to all others.
fn attributes() -> Attributes {
    Attributes { exclusivity: EXCLUSIVITY_HIGH + 1, capabilities: Capabilities::SEND, ..Hub::attributes(4096) }
}

/// A rail that accepts all frames and delivers none.
struct Mute {
    attributes: Attributes,
    room: Box<[u8; 4096]>,
}

impl Rail for Mute {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn card(&self) -> &[u8] {
        b"mute"
    }

    fn add_peer(&mut self, _: Peer, _: &[u8]) -> Result<Endpoint, Unreachable> {
        Ok(Endpoint(0))
    }

    fn del_peer(&mut self, _: Endpoint) {}

    fn reserve(&mut self, endpoint: Endpoint, Shape { len, .. }: Shape) -> Result<Grant<'_>, SendError> {
        let ticket = Ticket { endpoint, position: 0, len, extra: 0 };
        // SAFETY: no frame is longer than the attributes allow, and the buffer is as long as that.
        Ok(unsafe { Grant::new(self.room.as_mut_ptr(), len as usize, ticket) })
    }

    fn commit(&mut self, _: Ticket) -> Sent {
        Sent::Done
    }

    fn drained(&self, _: Endpoint) -> bool {
        true
    }

    fn poll(&mut self, _: Instant) -> Option<Event> {
        None
    }

    fn read(&self, _: FrameId, _: usize, _: &mut [u8]) -> usize {
        0
    }

    unsafe fn deliver(&mut self, _: FrameId, _: usize, _: Span, _: Cookie) -> Delivery {
        Delivery::Done
    }

    fn release(&mut self, _: FrameId) {}

    fn poll_at(&self) -> Option<Instant> {
        None
    }

    fn arm(&mut self) -> bool {
        true
    }
}

impl FastPath for Mute {}
impl RequestCache for Mute {}
impl SingleCopy for Mute {}
impl DeviceMemory for Mute {}
impl Failover for Mute {}
impl Liveness for Mute {}

/// Threads wait for a silent rank. One of them polls all the time, and detects the stall for all.
#[test]
fn b18_b42_each_thread_learns_of_a_stalled_rank_whichever_thread_notices() {
    for thread in [false, true] {
        let settings = |config: &mut towline::Config| {
            (config.stall_timeout_ms, config.spin_us) = (100, u32::MAX);
        };
        let builder = Builder::new().transports("loopback").configure(settings).threads(Multiple);
        let mute = |_| Mute { attributes: attributes(), room: Box::new([0; 4096]) };
        // SAFETY: the rail transfers nothing.
        let world: World<Multiple> = unsafe { builder.progress_thread(thread).rail_per_context(mute) }.build().unwrap();
        let window = Arc::new(world.window(64).unwrap());
        let (told, ends) = mpsc::channel();
        for _ in 0..4 {
            let (window, told) = (Arc::clone(&window), told.clone());
            // Not joined: a thread that never learns of the stall would block the test.
            std::thread::spawn(move || told.send(window.fetch_and_op(0, 0, AtomicOp::Add, 1u64)));
        }
        for _ in 0..4 {
            let end = ends.recv_timeout(Duration::from_secs(300)).expect("each thread is told");
            assert_eq!(end, Err(Error::PeerFailed { rank: 0 }));
        }
    }
}

/// A loopback rail whose bodies arrive only when the test allows it.
struct Late {
    inner: loopback::Rail<'static>,
    attributes: Attributes,
    lets: Arc<AtomicBool>,
    coming: Option<(FrameId, usize, Span, Cookie)>,
}

impl Rail for Late {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn card(&self) -> &[u8] {
        self.inner.card()
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        self.inner.add_peer(peer, card)
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        self.coming = None;
        self.inner.del_peer(endpoint);
    }

    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        self.inner.reserve(to, shape)
    }

    fn commit(&mut self, ticket: Ticket) -> Sent {
        self.inner.commit(ticket)
    }

    fn drained(&self, to: Endpoint) -> bool {
        self.inner.drained(to)
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        match self.coming.take_if(|_| self.lets.load(Ordering::Relaxed)) {
            Some((frame, skip, sink, cookie)) => {
                // SAFETY: the promise of the caller of `deliver`, which holds until this event.
                unsafe { self.inner.deliver(frame, skip, sink, cookie) };
                Some(Event::Delivered(cookie))
            }
            None => self.inner.poll(now),
        }
    }

    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        self.inner.read(frame, at, into)
    }

    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, cookie: Cookie) -> Delivery {
        self.coming = Some((frame, skip, sink, cookie));
        Delivery::Pending
    }

    fn release(&mut self, frame: FrameId) {
        self.inner.release(frame);
    }

    fn poll_at(&self) -> Option<Instant> {
        None
    }

    fn arm(&mut self) -> bool {
        self.inner.arm()
    }
}

impl FastPath for Late {}
impl RequestCache for Late {}
impl SingleCopy for Late {}
impl DeviceMemory for Late {}
impl Failover for Late {}
impl Liveness for Late {}

/// There are as many windows as possible, and one is dropped while a body arrives in it. No later write reaches it, and there is
/// room for another window as soon as the body has arrived.
#[test]
fn b25_a_window_that_is_dropped_while_a_body_arrives_is_released_afterwards() {
    let mut arena = Arena::new(Box::leak(Box::new([0u8; 65_536])));
    let hub = Box::leak(Box::new(Hub::new(&mut arena, 1, 8, 4096).unwrap()));
    let lets = Arc::new(AtomicBool::new(true));
    let late = Late { inner: hub.rail(0).unwrap(), attributes: attributes(), lets: Arc::clone(&lets), coming: None };
    // SAFETY: the rail keeps the contract, as the rail inside does.
    let world = unsafe { Builder::new().transports("loopback").rail(late) }.build().unwrap();
    let window: Window = world.window(4096).unwrap();
    let others: Vec<Window> = std::iter::from_fn(|| world.window(8).ok()).collect();
    assert!(!others.is_empty(), "and no more of them");
    lets.store(false, Ordering::Relaxed);
    window.put(0, 0, &[7u8; 2000]).unwrap();
    while world.progress() != 0 {}
    drop(window);
    world.progress();
    assert_eq!(
        world.window(8).err(),
        Some(Error::NoWindow { rank: 0, why: Shortage::Windows }),
        "the body has it still"
    );
    lets.store(true, Ordering::Relaxed);
    while world.progress() != 0 {}
    assert_eq!(world.window(8).err(), None);
}
