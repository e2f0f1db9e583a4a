//! The rail: what a rank holds, and the message path. What is rare lives in [`send`](crate::rail::send),
//! [`receive`](crate::rail::receive), [`peers`](crate::rail::peers) and [`wait`](crate::rail::wait).

use std::fs::File;
use std::os::fd::OwnedFd;

use towline_core::convertor::Span;
use towline_core::rail::attributes::EXCLUSIVITY_HOST;
use towline_core::rail::native::{Key, Native, NativeError, OneSided, Region};
use towline_core::rail::{
    AcceleratorLimits, Attributes, Capabilities, Cookie, Delivery, Endpoint, Event, Frame, FrameId, Grant, HEAD, Lane,
    Lost, Peer, Rail as RailTrait, RemoteBuffer, SendError, Sent, Shape, Short, Ticket, Unreachable,
};
use towline_core::rma::Access;
use towline_core::time::Instant;

use crate::segment::control::Board;
use crate::card::{self, Card};
use crate::config::Config;
use crate::error::OpenError;
use crate::host::process::{self as host, Names, Place, Process};
use crate::rail::held_frames::Kept;
use crate::rail::outgoing::{Outgoing, Ring};
use crate::segment::slots::Slots;
use crate::ring::{Arrived, Forged, Waiting, meta, slots_for};
use crate::rma::regions::{self as windows, Own, Theirs};

/// In [`Rail::front`]: none, since rings are fewer.
pub(crate) const NO_RING: u32 = u32::MAX;

/// One rank's way to the other processes of its host.
///
/// ```
/// use towline_core::rail::{Event, Lane, Peer, Rail as _, Shape};
/// use towline_core::time::Instant;
/// use towline_sm::{Config, Rail};
///
/// // Two ranks; here in one thread, usually in two processes that exchange their cards.
/// let job = u64::from(std::process::id());
/// let mut left = Rail::open(Config::new(job, 0, 2))?;
/// let mut right = Rail::open(Config::new(job, 1, 2))?;
/// let to_right = left.add_peer(Peer(1), right.card()).unwrap();
/// right.add_peer(Peer(0), left.card()).unwrap();
///
/// let mut grant = left.reserve(to_right, Shape { tag: 0x80, lane: Lane::Eager, header: 2, len: 5 }).unwrap();
/// grant.write(0, b"hello");
/// let ticket = grant.finish();
/// left.commit(ticket);
/// let Some(Event::Frame(frame)) = right.poll(Instant::ZERO) else { panic!() };
/// assert_eq!((frame.from, frame.tag, frame.head()), (Peer(0), 0x80, &b"hello"[..]));
/// # Ok::<(), towline_sm::OpenError>(())
/// ```
#[derive(Debug)]
pub struct Rail {
    /// The incoming ring that is looked at first, or [`NO_RING`]: it is found by `poll`, and is a hot one.
    pub(crate) front: u32,
    /// Polls until it is another ring's turn.
    pub(crate) countdown: u32,
    /// Turns until upkeep is due.
    pub(crate) turns: u32,
    /// Which hot ring `poll` looks at first.
    pub(crate) turn: usize,
    /// Incoming rings that are polled each time, by their index in `rings`.
    pub(crate) hot: Vec<u32>,
    /// Two lanes for each endpoint: short and long messages.
    pub(crate) rings: Vec<Ring>,
    pub(crate) kept: Kept,
    pub(crate) board: Board,
    /// The bell when it was last answered.
    pub(crate) bell_seen: u32,
    /// Incoming rings that have been quiet: one of them is looked at in each idle poll, all in upkeep.
    pub(crate) warm: Vec<u32>,
    pub(crate) warm_turn: usize,
    pub(crate) rounds: u32,
    /// By endpoint.
    pub(crate) peers: Vec<PeerState>,
    /// Endpoint of each rank, plus one.
    pub(crate) endpoints: Box<[u32]>,
    /// Bits of the doorbell that concern ranks not added yet.
    pub(crate) early: Box<[u64]>,
    /// Peers whose loss is still to be reported.
    pub(crate) failing: u32,
    /// Rings whose files are locked until their receivers have looked.
    pub(crate) locks: u32,
    /// Rings that were made without a lock, because there were too many.
    pub(crate) crowded: u32,
    /// Whether someone was told `Busy` since the last `arm`.
    pub(crate) starved: bool,
    /// Whether sleep may be announced on the board.
    pub(crate) armed: bool,
    /// Whether frames wake nobody unless they are asked to.
    pub(crate) on_demand: bool,
    /// Whether this process takes part in barriers for sleepers.
    pub(crate) barrier: bool,
    /// The pipe that wakes us, once it was asked for.
    pub(crate) pipe: Option<OwnedFd>,
    /// Memory of ours that peers may map.
    pub(crate) own: Own,
    pub(crate) next_check: Instant,
    pub(crate) me: Process,
    pub(crate) card: Card,
    pub(crate) card_bytes: [u8; card::LEN],
    pub(crate) names: Names,
    pub(crate) config: Config,
    pub(crate) attributes: Attributes,
}

/// A peer, apart from its rings.
#[derive(Debug)]
pub(crate) struct PeerState {
    pub rank: u32,
    pub peer: Peer,
    pub stage: Stage,
    /// Its incarnation.
    pub nonce: u64,
    pub process: Process,
    pub board: Option<Board>,
    /// Ready once its process has ended.
    pub pidfd: Option<OwnedFd>,
    /// Its pipe, once it was written to.
    pub pipe: Option<File>,
    /// Whether it cannot make us pass its barrier, so that we fence for it.
    pub fence: bool,
    /// The ring to it was made while too many waited to be looked at.
    pub crowded: bool,
    /// Memory of its that we have mapped.
    pub theirs: Theirs,
}

/// What may be done with a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Everything.
    Live,
    /// Its loss is known and will be reported when what it sent has been read.
    Failing(Lost),
    /// Its loss was reported.
    Dead,
    /// Deleted, perhaps to be added again: its rings stay mapped, since it may write to them still.
    Parked,
    /// Deleted for good: the entry may be used for another.
    Free,
}

impl Rail {
    /// Opens a rank's rail: clears away what dead jobs left, and makes the board.
    ///
    /// # Errors
    /// [`OpenError`]: a setting that cannot work, no room in the file system, a rank that runs already.
    pub fn open(config: Config) -> Result<Self, OpenError> {
        config.check()?;
        let me = Process::me();
        host::sweep(&config.directory, &me);
        let place = Place::of(&config.directory).map_err(|error| OpenError::System {
            doing: "look at",
            path: config.directory.clone(),
            error,
        })?;
        let names = Names::new(&config.directory, config.job);
        let (nonce, barrier) = (host::nonce(), crate::rail::wait::register());
        let board = Board::create(&names.board(config.rank), config.ranks, &me, nonce, barrier)?;
        let user = rustix::process::geteuid().as_raw();
        let card = Card { place, user, rank: config.rank, job: config.job, nonce, process: me };
        let attributes = Attributes {
            name: "sm",
            capabilities: Capabilities::SEND.union(Capabilities::SIGNALED).union(if config.progress_thread {
                Capabilities::PROGRESS_THREAD
            } else {
                Capabilities::empty()
            }),
            exclusivity: EXCLUSIVITY_HOST,
            latency: config.latency_nanos,
            bandwidth: config.bandwidth_megabytes_per_second,
            eager_limit: config.eager_limit_bytes,
            rendezvous_eager_limit: config.eager_limit_bytes,
            min_fragment: config.bulk_limit_bytes.min(4096),
            max_send_size: config.bulk_limit_bytes,
            cache_size: 0,
            cache_bytes: 0,
            accelerator: AcceleratorLimits::NONE,
            frames_kept: config.frames_kept,
            one_sided: if config.share_windows { windows::ALL } else { OneSided::NONE },
        };
        Ok(Self {
            front: NO_RING,
            countdown: 0,
            turns: 0,
            turn: 0,
            hot: Vec::new(),
            rings: Vec::new(),
            kept: Kept::new(config.frames_kept),
            board,
            bell_seen: 0,
            warm: Vec::new(),
            warm_turn: 0,
            rounds: 0,
            peers: Vec::new(),
            endpoints: vec![0; config.ranks as usize].into(),
            early: vec![0; crate::segment::layout::bit_words(config.ranks)].into(),
            failing: 0,
            locks: 0,
            crowded: 0,
            starved: false,
            armed: false,
            on_demand: false,
            barrier,
            pipe: None,
            own: Own::default(),
            next_check: Instant::ZERO,
            me,
            card,
            card_bytes: card.encode(),
            names,
            config,
            attributes,
        })
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Takes the frame that waits in an incoming ring, if there is one and it may be held.
    pub(crate) fn take(&mut self, ring: u32) -> Option<Event> {
        if self.kept.is_full() {
            return None;
        }
        let Ring { incoming, outgoing } = self.rings.get_mut(ring as usize)?;
        let waiting = incoming.receiver.peek(&incoming.slots)?;
        let Arrived { position, len, tag } = match incoming.receiver.take(waiting) {
            Ok(Some(arrived)) => arrived,
            Ok(None) => return self.take_after_padding(ring),
            Err(Forged) => return self.forged(ring),
        };
        claim_answer(outgoing);
        // SAFETY: the mapping is the ring's, and is not given up in here.
        let head = unsafe { Slots::head(incoming.slots.frame(position)) };
        let from = incoming.peer;
        if len as usize > HEAD {
            incoming.held += 1;
            let id = self.kept.hold(ring, position, len);
            return Some(Event::Frame(Frame { id, from, tag, valid: HEAD as u8, len, head }));
        }
        // Its one slot has been copied, so it may go back.
        if incoming.held == 0 && incoming.receiver.give_back(&incoming.slots, position.wrapping_add(1)) {
            self.credit_given(ring);
        }
        Some(Event::Frame(Frame { id: FrameId(0), from, tag, valid: len as u8, len, head }))
    }
}

/// Who gets a message often answers it: the slot for that may come over while the message is looked at.
#[inline(always)]
fn claim_answer(outgoing: &Outgoing) {
    outgoing.slots.claim(outgoing.sender.position());
}

impl RailTrait for Rail {
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn card(&self) -> &[u8] {
        &self.card_bytes
    }

    fn add_peer(&mut self, peer: Peer, card: &[u8]) -> Result<Endpoint, Unreachable> {
        self.add(peer, card)
    }

    fn del_peer(&mut self, endpoint: Endpoint) {
        self.delete(endpoint);
    }

    #[inline]
    fn reserve(&mut self, to: Endpoint, shape: Shape) -> Result<Grant<'_>, SendError> {
        let lane = usize::from(shape.lane == Lane::Bulk);
        if let Some(outgoing) = self.rings.get_mut(to.0 as usize * 2 + lane).map(|ring| &mut ring.outgoing)
            && shape.len < outgoing.bound
            && usize::from(shape.header) <= HEAD
        {
            let kept = if shape.lane == Lane::Control { 0 } else { outgoing.kept };
            if let Some(position) = outgoing.sender.reserve(slots_for(shape.len), kept) {
                let extra = u32::from(shape.tag) | (lane as u32) << 8;
                let ticket = Ticket { endpoint: to, position: u64::from(position), len: shape.len, extra };
                // SAFETY: the sender reserved these slots, which hold the prefix and `len` bytes and do not run over the
                // ring's end; the receiver leaves them alone until `commit`, and if it does not, only its data suffers.
                return Ok(unsafe { Grant::new(outgoing.slots.frame(position), shape.len as usize, ticket) });
            }
        }
        self.reserve_slowly(to, shape)
    }

    #[inline]
    fn commit(&mut self, ticket: Ticket) -> Sent {
        let lane = (ticket.extra >> 8 & 1) as usize;
        if let Some(outgoing) = self.rings.get_mut(ticket.endpoint.0 as usize * 2 + lane).map(|ring| &mut ring.outgoing)
            && ticket.position as u32 == outgoing.sender.position()
        {
            outgoing.sender.publish(&outgoing.slots, slots_for(ticket.len), meta(ticket.len, ticket.extra as u8));
            if outgoing.reader_may_sleep() {
                self.wake_for_frame(ticket.endpoint.0);
            }
        }
        Sent::Done
    }

    fn drained(&self, _to: Endpoint) -> bool {
        true // what is in the ring needs us no more
    }

    fn poll(&mut self, now: Instant) -> Option<Event> {
        let Some(countdown) = self.countdown.checked_sub(1) else { return self.turn_over(now) };
        self.countdown = countdown;
        self.look()
    }

    fn read(&self, frame: FrameId, at: usize, into: &mut [u8]) -> usize {
        let Some((from, len)) = self.held(frame) else { return 0 };
        let count = len.saturating_sub(at).min(into.len());
        // SAFETY: `at + count` is within the frame, which lies in the mapping; `into` does not, since no slice reaches there.
        unsafe { core::ptr::copy_nonoverlapping(from.wrapping_add(at), into.as_mut_ptr(), count) };
        count
    }

    #[inline]
    unsafe fn deliver(&mut self, frame: FrameId, skip: usize, sink: Span, _cookie: Cookie) -> Delivery {
        if let Some((from, len)) = self.held(frame)
            && skip < len
        {
            // SAFETY: the frame lies in the mapping and is readable from `skip` to its end; the caller vouches for the sink.
            unsafe { sink.unpack(from.wrapping_add(skip), len - skip) };
        }
        self.release(frame);
        Delivery::Done
    }

    #[inline]
    fn release(&mut self, frame: FrameId) {
        let Some(held) = self.kept.drop(frame) else { return };
        let Some(incoming) = self.rings.get_mut(held.ring as usize).map(|ring| &mut ring.incoming) else { return };
        incoming.held -= 1;
        let read_to = incoming.receiver.position();
        let free_to = if incoming.held == 0 { read_to } else { self.kept.oldest(held.ring, read_to) };
        if incoming.receiver.give_back(&incoming.slots, free_to) {
            self.credit_given(held.ring);
        }
    }

    fn poll_at(&self) -> Option<Instant> {
        self.watches().then_some(self.next_check)
    }

    fn wake_on_demand(&mut self, on: bool) {
        self.on_demand = on;
    }

    fn signal(&mut self, to: Endpoint) {
        self.wake(to.0);
    }

    fn arm(&mut self) -> bool {
        self.announce_sleep()
    }
}

impl towline_core::rail::FastPath for Rail {
    #[inline(always)]
    unsafe fn send_now(&mut self, to: Endpoint, tag: u8, header: [u64; 3], body: Span) -> Result<Sent, SendError> {
        let len = (size_of_val(&header) as u32).wrapping_add(body.len() as u32);
        let Some(outgoing) = self.rings.get_mut(to.0 as usize * 2).map(|ring| &mut ring.outgoing) else {
            return Err(SendError::Unreachable);
        };
        if len >= outgoing.bound {
            return Err(SendError::Busy); // the ring is still to be made, or the frame is too long: `reserve` tells
        }
        let slots = slots_for(len);
        let Some(position) = outgoing.sender.reserve(slots, outgoing.kept) else { return Err(SendError::Busy) };
        let frame = outgoing.slots.frame(position);
        let ticket = Ticket { endpoint: to, position: u64::from(position), len, extra: 0 };
        // SAFETY: as in `reserve`.
        let mut grant = unsafe { Grant::new(frame, len as usize, ticket) };
        grant.write_words(0, header);
        // SAFETY: the caller vouches for the body.
        unsafe { grant.gather(size_of_val(&header), body) };
        // SAFETY: the mapping is the ring's, and is not given up in here.
        let first = unsafe { Slots::mark_of(frame) };
        outgoing.sender.publish_at(&outgoing.slots, position, first, slots, meta(len, tag));
        if outgoing.reader_may_sleep() {
            self.wake_for_frame(to.0);
        }
        Ok(Sent::Done)
    }

    #[inline(always)]
    fn poll_short(&mut self, tag: u8) -> Option<Short> {
        let (left, over) = self.countdown.overflowing_sub(1);
        self.countdown = left;
        if over {
            self.countdown = 0;
            return None;
        }
        let Ring { incoming, outgoing } = self.rings.get_mut(self.front as usize)?;
        let position = incoming.receiver.position();
        let frame = incoming.slots.frame(position);
        // SAFETY: the mapping is the ring's, and is not given up in here.
        let waiting = Waiting::look(position, unsafe { Slots::mark_of(frame) })?;
        let len = incoming.receiver.take_short(waiting, tag)?;
        // SAFETY: as above.
        let header = unsafe { Slots::header(frame) };
        let (from, body) = (incoming.peer, frame.wrapping_add(size_of_val(&header)).cast_const());
        claim_answer(outgoing);
        // SAFETY: what `take_short` yields has 24 to 56 bytes, all in one slot, which is ours until it is given back.
        Some(unsafe { Short::new(from, header, body, len as usize) })
    }

    fn poll_again(&mut self) -> Option<Frame> {
        let incoming = self.rings.get(self.front as usize).map(|ring| &ring.incoming)?;
        let Arrived { position, len, tag } = incoming.receiver.last_short(&incoming.slots)?;
        // SAFETY: as in `take`.
        let head = unsafe { Slots::head(incoming.slots.frame(position)) };
        Some(Frame { id: FrameId(0), from: incoming.peer, tag, valid: len as u8, len, head })
    }
}

impl towline_core::rail::SingleCopy for Rail {
    fn expose(&mut self, to: Endpoint, body: &Span) -> Option<RemoteBuffer> {
        self.lend_to(to, body)
    }

    unsafe fn read_exposed(&mut self, from: Endpoint, loan: &RemoteBuffer, sink: Span) -> bool {
        // SAFETY: passed on from the caller.
        unsafe { self.fetch_from(from, loan, sink) }
    }

    fn read_limit(&self, from: Endpoint) -> u64 {
        self.fetches_from(from)
    }

    fn revoke_exposed(&mut self) {
        self.recall_loans();
    }
}

impl towline_core::rail::DeviceMemory for Rail {
    unsafe fn register(&mut self, base: *mut u8, len: usize, access: Access) -> Result<(Region, Key), NativeError> {
        self.own.register(base, len, access)
    }

    fn deregister(&mut self, region: Region) {
        self.own.deregister(region);
    }

    unsafe fn perform(&mut self, on: Endpoint, native: &Native, _cookie: Cookie) -> Result<Option<u64>, NativeError> {
        // SAFETY: passed on from the caller.
        unsafe { self.perform_on(on, native) }
    }
}

impl towline_core::rail::RequestCache for Rail {}
impl towline_core::rail::Failover for Rail {}
impl towline_core::rail::Liveness for Rail {}
