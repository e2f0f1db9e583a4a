//! A rail of the program that is slow: one that has no room for a long time, and one that takes long to add its peers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};

use towline::{Builder, Error, Multiple, Rail};
use towline_core::convertor::Span;
use towline_core::rail::attributes::EXCLUSIVITY_HIGH;
use towline_core::rail::{
    AcceleratorLimits, Attributes, Capabilities, Cookie, Delivery, DeviceMemory, Endpoint, Event, Failover, FastPath,
    FrameId, Grant, Liveness, Lost, Peer, RequestCache, SendError, Sent, Shape, SingleCopy, Ticket, Unreachable,
};
use towline_core::time::{Duration, Instant};

mod common;

/// A rail that answers `Busy` for a while, like one that waits for a descriptor, and then gives up the peer.
struct Full {
    attributes: Attributes,
    until: Option<Instant>,
    reported: bool,
    polls: Arc<AtomicU64>,
    /// What happens while a peer is added.
    adding: Option<Box<dyn FnMut() + Send>>,
}

const A_WHILE: Duration = Duration::from_millis(300);
/// Many more polls than a sleeping rank makes in that time, and far fewer than a polling one makes.
const MANY: u64 = 20_000;

impl Full {
    fn new(polls: &Arc<AtomicU64>) -> Self {
        let attributes = Attributes {
            name: "full",
            capabilities: Capabilities::SEND,
            exclusivity: EXCLUSIVITY_HIGH + 1,
            latency: 1,
            bandwidth: 1,
            eager_limit: 4096,
            rendezvous_eager_limit: 1024,
            min_fragment: 4096,
            max_send_size: 4096,
            cache_size: 0,
            cache_bytes: 0,
            accelerator: AcceleratorLimits::NONE,
            frames_kept: 1,
            one_sided: towline_core::rail::native::OneSided::NONE,
        };
        Self { attributes, until: None, reported: false, polls: Arc::clone(polls), adding: None }
    }
}

impl Rail for Full {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn card(&self) -> &[u8] {
        b"full"
    }

    fn add_peer(&mut self, _: Peer, _: &[u8]) -> Result<Endpoint, Unreachable> {
        self.adding.iter_mut().for_each(|adding| adding());
        Ok(Endpoint(0))
    }

    fn del_peer(&mut self, _: Endpoint) {}

    fn reserve(&mut self, _: Endpoint, _: Shape) -> Result<Grant<'_>, SendError> {
        Err(SendError::Busy)
    }

    fn commit(&mut self, _: Ticket) -> Sent {
        Sent::Done
    }

    fn drained(&self, _: Endpoint) -> bool {
        true
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        let until = *self.until.get_or_insert(now + A_WHILE);
        (now >= until && !std::mem::replace(&mut self.reported, now >= until))
            .then_some(Event::Lost(Peer(0), Lost::TimedOut))
    }

    fn read(&self, _: FrameId, _: usize, _: &mut [u8]) -> usize {
        0
    }

    unsafe fn deliver(&mut self, _: FrameId, _: usize, _: Span, _: Cookie) -> Delivery {
        Delivery::Done
    }

    fn release(&mut self, _: FrameId) {}

    fn poll_at(&self) -> Option<Instant> {
        self.until.filter(|_| !self.reported)
    }

    fn arm(&mut self) -> bool {
        true
    }
}

impl FastPath for Full {}
impl RequestCache for Full {}
impl SingleCopy for Full {}
impl DeviceMemory for Full {}
impl Failover for Full {}
impl Liveness for Full {}

#[test]
fn p11_a_rank_that_waits_for_room_on_a_rail_sleeps() {
    let polls = Arc::new(AtomicU64::new(0));
    // SAFETY: the rail transfers nothing.
    let world = unsafe { Builder::new().transports("loopback").rail(Full::new(&polls)) }.build().unwrap();
    assert_eq!(world.send(0, 1, b"x"), Err(Error::PeerFailed { rank: 0 }));
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls < MANY, "{polls} polls");
}

#[test]
fn p11_a_progress_thread_does_not_poll_for_room_on_a_rail() {
    let polls = Arc::new(AtomicU64::new(0));
    let (builder, counted) = (Builder::new().transports("loopback").threads(Multiple), Arc::clone(&polls));
    // SAFETY: the rail transfers nothing.
    let builder = unsafe { builder.progress_thread(true).rail_per_context(move |_| Full::new(&counted)) };
    let world = builder.build().unwrap();
    let sending = world.isend(0, 1, vec![1u8]).unwrap();
    while world.lost().is_empty() {
        std::thread::yield_now(); // makes no progress
    }
    assert_eq!(sending.wait().unwrap_err().error, Error::PeerFailed { rank: 0 });
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls < MANY, "{polls} polls");
}

/// What a rank sends before it leaves would be lost if another rank did not know it yet.
#[test]
fn no_rank_begins_before_all_ranks_know_each_other() {
    let (begun, waits) = channel();
    let waits: std::sync::Mutex<Option<Receiver<()>>> = std::sync::Mutex::new(Some(waits));
    let knows = Arc::new(AtomicBool::new(false));
    common::jobs(2, |rank, job| {
        let mut rail = Full::new(&Arc::default());
        if rank == 1 {
            let (mut waits, knows) = (waits.lock().unwrap().take(), Arc::clone(&knows));
            rail.adding = Some(Box::new(move || {
                // The other rank begins meanwhile if it can, also on a busy machine.
                let begun = waits.take().map(|begun| begun.recv_timeout(std::time::Duration::from_secs(2)));
                knows.fetch_or(begun.is_some(), Ordering::SeqCst);
            }));
        }
        // SAFETY: the rail transfers nothing.
        let world = unsafe { Builder::new().transports("loopback").rail(rail) }.job(job).build().unwrap();
        if rank == 0 {
            let _ = begun.send(());
            assert!(knows.load(Ordering::SeqCst), "rank 1 did not know rank 0 yet");
        }
        drop(world);
    });
}
