//! Reliable frames over one rail that may lose, double, reorder or change them, or break down.
//!
//! A [`Link`] wraps a raw rail and is a [`Rail`] itself. Frames get numbers and checks; they are kept until the peer has
//! acknowledged them, resent when they are lost, and handed up once. A peer that falls silent is [`Event::Down`]: its
//! frames can move to another link, and it is probed until it answers, which is [`Event::Up`].
//!
//! Both ends of a rail are links, or neither is. The two greet each other before the first frame, so the first send to a
//! peer is answered `Busy`. All memory comes from an [`Arena`], all time from [`Rail::poll`].
//!
//! - A body of up to [`COPIED`] bytes is copied; a longer one stays where it is until it is
//!   acknowledged and the raw rail reads it no more.
//! - Headers are at most [`LINKED_HEAD`] bytes long, and tags `0x11` and `0x12` are the link's own:
//!   other frames are answered [`SendError::TooLong`].
//! - A body whose sum is wrong is not told of: it comes once more into the same sink, and then is.
//!
//! ```
//! use towline_core::arena::Arena;
//! use towline_core::link::{Config, Crc32c, Link};
//! use towline_core::rail::{Event, Lane, Peer, Rail, SendError, Shape, loopback::Hub};
//! use towline_core::time::Instant;
//!
//! let mut block = vec![0u8; 1 << 16];
//! let hub = Hub::new(&mut Arena::new(&mut block), 2, 8, 256).unwrap();
//! let mut blocks = [vec![], vec![]];
//! let mut link = |end: u32, block| {
//!     let raw = hub.rail(end).unwrap();
//!     let config = Config { peers: 1, slots: 8, ..Config::new(0, 1000 + end as u64, raw.attributes()) };
//!     let block: &mut Vec<u8> = block;
//!     block.resize(config.bytes(&raw), 0);
//!     Link::new(raw, Crc32c, config, &mut Arena::new(block)).unwrap()
//! };
//! let [one, other] = &mut blocks;
//! let (mut left, mut right) = (link(0, one), link(1, other));
//! let to_right = left.add_peer(Peer(1), &right.card().to_vec()).unwrap();
//! right.add_peer(Peer(0), &left.card().to_vec()).unwrap();
//!
//! let shape = Shape { tag: 0x80, lane: Lane::Eager, header: 2, len: 5 };
//! assert_eq!(left.reserve(to_right, shape).err(), Some(SendError::Busy)); // they have to meet first
//! for nanos in 0..3 {
//!     // Who has other links to that peer has them greet it too.
//!     assert!(matches!(right.poll(Instant::from_nanos(nanos)), None | Some(Event::Silent(Peer(0), _))));
//!     assert!(matches!(left.poll(Instant::from_nanos(nanos)), None | Some(Event::Silent(Peer(1), _))));
//! }
//! let mut grant = left.reserve(to_right, shape).unwrap();
//! grant.write(0, b"hello");
//! let ticket = grant.finish();
//! left.commit(ticket);
//! let Some(Event::Frame(frame)) = right.poll(Instant::from_nanos(9)) else { panic!() };
//! assert_eq!(frame.head(), b"hello");
//!
//! assert!(!left.drained(to_right), "it is not acknowledged yet");
//! assert!(right.poll(Instant::from_nanos(9)).is_none());
//! let acknowledges_at = right.poll_at().unwrap(); // it waits for a frame to go with, but not for long
//! right.poll(acknowledges_at);
//! left.poll(acknowledges_at);
//! assert!(left.drained(to_right));
//! ```

mod acks;
mod card;
mod checksum;
mod config;
mod counters;
mod estimator;
mod header;
mod health;
mod incoming;
mod loss;
mod memory;
mod numbers;
mod outgoing;
mod overtaking;
mod path;
#[cfg(test)]
pub(crate) mod tests;
mod timers;
mod voids;
mod wanted;
mod window;

use core::cell::Cell;

use zerocopy::FromZeros;

use crate::arena::{Arena, OutOfMemory};
use crate::convertor::Span;
use crate::pool::{Handle, Pool};
use crate::queue::Queue;
use crate::rail::access::Access;
use crate::rail::attributes::{AcceleratorLimits, Attributes, Capabilities};
use crate::rail::native::{Key, Native, NativeError, Region};
use crate::rail::tags;
use crate::rail::{Claim, Origin, UnackedFrame};
use crate::rail::{
    Cookie, Delivery, Endpoint, Event, FrameId, FullRail, GiveUp, Grant, Lane, Peer, Rail, SendError, Sent, Shape,
    Ticket, Unreachable,
};
use crate::time::Instant;
use card::Card;
pub use checksum::{Checksum, Crc32c};
pub use config::Config;
pub use counters::Counters;
use header::{HEADER, Kind, PREFIX};
use incoming::{Coming, Progress, TAIL};
use memory::Memory;
use numbers::Bits;
use outgoing::{HEAD_ROOM, Kept};
use path::{Path, State};
use timers::Timers;
use window::Window;

/// Events of the raw rail that are dealt with in one poll before the caller has its turn.
const AT_ONCE: u32 = 64;
/// Polls after which acknowledgements leave although the raw rail is never idle; and after which timers are looked at, which
/// is better done when all that came has been heard.
const TURNS: u32 = 16;
const TIMER_TURNS: u32 = 64;

/// A rail that delivers each frame exactly once, over one that need not. See the [module](self).
#[derive(Debug)]
pub struct Link<'m, R, C> {
    raw: R,
    sums: C,
    config: Config,
    attributes: Attributes,
    card: &'m [u8],
    counters: Counters,

    paths: &'m mut [Path],
    /// Paths below this were used at least once; those of them that are free.
    touched: u32,
    free: Queue<'m>,
    cards: &'m mut [u8],
    sessions: u64,

    /// Window of each path: slots of kept frames by number, plus one.
    ring: &'m mut [u32],
    /// Numbers of each path that were passed over, since another link brings their frames: low words.
    away: &'m mut [u32],
    /// Three sets of bits for each path.
    bits: &'m mut [u64],
    kept: Pool<'m, Kept>,
    slots: Memory<'m>,
    long: Memory<'m>,
    long_free: Queue<'m>,
    draft: Handle,
    /// The frame in the place that is kept for one that was moved here, for which there was no other.
    ///
    /// Frames of a dead link wait in its slots for room in another, and it may be the other way round for another peer: if both
    /// are full, neither could begin. One place beyond all others is enough: who has it is acknowledged, and makes room.
    ferry: Handle,
    /// Peers for which data frames are kept, and those for which control frames are.
    data_holders: u32,
    control_holders: u32,
    /// Bodies to tell of that are read no more.
    done: Queue<'m>,

    coming: Pool<'m, Coming>,
    progress: &'m [Progress],
    /// A look found a bad body.
    spoilt: Cell<bool>,
    tails: Memory<'m>,
    scratch: Memory<'m>,
    scratch_of: Handle,
    /// Bodies to tell of that are in their sinks.
    filled: Queue<'m>,
    /// The raw rail's frame that is being looked at is to be given back.
    holds: bool,

    /// Paths of which frames were refused, to be told of room in turn.
    refused: Queue<'m>,
    /// When paths tell what came.
    acks: Timers<'m>,
    /// Paths with frames for which the raw rail had no room.
    work: Queue<'m>,
    reports: Queue<'m>,
    timers: Timers<'m>,
    /// The last time that was told, in nanoseconds.
    now: u64,
    /// No peer is dead before this: nobody listened for a while.
    grace: u64,
    /// When the time was told first: what happened before did not happen long ago.
    began: u64,
    /// When the raw rail last had nothing more to say, and for how long it was listened to since: pauses do not count.
    heard_all: u64,
    listened: u64,
    turn: u32,
    /// The raw rail may have more.
    more: bool,
    /// Times in a row that the raw rail had room for nothing of the work, and how much of it was tried this time.
    work_refused: u8,
    work_tried: u32,
    /// Before this, to try again is of no use to a caller that sleeps.
    work_due: u64,
}

impl<'m, R: FullRail, C: Checksum> Link<'m, R, C> {
    /// A link over `raw`, which nobody has added a peer to.
    ///
    /// # Errors
    /// [`OutOfMemory`] where the arena is too small; [`Config::bytes`] tells how large it must be.
    pub fn new(raw: R, sums: C, config: Config, arena: &mut Arena<'m>) -> Result<Self, OutOfMemory> {
        let config = config.sane(raw.attributes());
        let sizes = Sizes::of(&config, raw.attributes());
        let card = arena.table::<u8>(card::PREFIX.saturating_add(raw.card().len()))?;
        let prefix = Card::of(&config).prefix();
        card.iter_mut().zip(prefix.iter().chain(raw.card())).for_each(|(to, from)| *to = *from);
        let mut long_free = Queue::new(arena, sizes.long)?;
        (0..sizes.long as u32).for_each(|place| long_free.push(place));
        Ok(Self {
            sums,
            attributes: attributes(raw.attributes()),
            config,
            card,
            counters: Counters::default(),
            paths: arena.table(sizes.peers)?,
            touched: 0,
            data_holders: 0,
            control_holders: 0,
            free: Queue::new(arena, sizes.peers)?,
            cards: arena.table(sizes.cards)?,
            sessions: 0,
            ring: arena.table(sizes.ring)?,
            away: arena.table(sizes.ring)?,
            bits: arena.table(sizes.bits)?,
            kept: Pool::new(arena, sizes.slots as u32)?,
            slots: Memory::new(arena, sizes.slots, sizes.slot)?,
            long: Memory::new(arena, sizes.long, sizes.longest)?,
            long_free,
            draft: Handle::NONE,
            ferry: Handle::NONE,
            done: Queue::new(arena, sizes.slots)?,
            coming: Pool::new(arena, sizes.coming as u32)?,
            progress: arena.table(sizes.coming)?,
            spoilt: Cell::new(false),
            tails: Memory::new(arena, sizes.coming, TAIL)?,
            scratch: Memory::new(arena, 1, sizes.longest)?,
            scratch_of: Handle::NONE,
            filled: Queue::new(arena, sizes.coming)?,
            holds: false,
            refused: Queue::new(arena, sizes.peers)?,
            acks: Timers::new(arena, sizes.peers)?,
            work: Queue::new(arena, sizes.peers)?,
            reports: Queue::new(arena, sizes.peers)?,
            timers: Timers::new(arena, sizes.peers)?,
            now: 0,
            grace: 0,
            began: 0,
            heard_all: 0,
            listened: 0,
            turn: 0,
            more: false,
            work_refused: 0,
            work_tried: 0,
            work_due: 0,
            raw,
        })
    }

    /// What happened so far.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether a peer has ever answered since it was added.
    pub fn has_met(&self, peer: Peer) -> bool {
        self.paths.iter().any(|path| path.state != State::Free && path.peer == peer.0 && path.known)
    }

    /// The rail below.
    pub const fn raw(&self) -> &R {
        &self.raw
    }

    /// The rail below, for what is its own: not to send, receive or add peers.
    pub const fn raw_mut(&mut self) -> &mut R {
        &mut self.raw
    }

    /// The rail below, of which the link lets go as it is.
    pub fn into_raw(self) -> R {
        self.raw
    }

    /// Frames that are kept, and those that have arrived and are not finished.
    pub const fn used(&self) -> [u32; 2] {
        [self.kept.used(), self.coming.used()]
    }

    fn set_of_bits(&mut self, at: u32, set: usize) -> Bits<'_> {
        let words = self.config.words();
        let start = (at as usize).wrapping_mul(3).wrapping_add(set).wrapping_mul(words);
        Bits(self.bits.get_mut(start..start.wrapping_add(words)).unwrap_or(&mut []))
    }

    /// Numbers that came, behind the first that did not.
    fn received_bits(&mut self, at: u32) -> Bits<'_> {
        self.set_of_bits(at, 0)
    }

    /// Numbers of which there is a record.
    fn busy_bits(&mut self, at: u32) -> Bits<'_> {
        self.set_of_bits(at, 1)
    }

    /// Numbers that left and are acknowledged.
    fn out_bits(&mut self, at: u32) -> Bits<'_> {
        self.set_of_bits(at, 2)
    }

    /// There is something to send for which the raw rail had no room.
    fn work_later(&mut self, at: u32) {
        if let Some(path) = self.paths.get_mut(at as usize)
            && !path.in_work
        {
            path.in_work = true;
            self.work.push(at);
        }
    }

    /// Nanoseconds until the raw rail is tried again after so many refusals in a row: the longer it has no room the less often,
    /// as a caller that sleeps is woken each time.
    fn after_refusals(&self, times: u8) -> u64 {
        self.config.ack_delay.as_nanos().clamp(1000, 1 << 32) << times.min(8)
    }

    /// Tries to send what waits for room. Polls are free to try at any time; only a round through all of it, at a time when it was
    /// due, counts as refused.
    fn do_work(&mut self) {
        let left = |link: &Self, at: u32| link.paths.get(at as usize).map(|path| path.left);
        for _ in 0..self.work.len().min(4) {
            let Some(at) = self.work.pop() else { break };
            if let Some(path) = self.paths.get_mut(at as usize) {
                path.in_work = false;
            }
            let before = left(self, at);
            let more = self.flush(at);
            if more {
                self.work_later(at);
            }
            if more && left(self, at) == before {
                self.work_tried = self.work_tried.saturating_add(1);
            } else {
                (self.work_tried, self.work_refused, self.work_due) = (0, 0, 0);
            }
        }
        if self.work.is_empty() {
            (self.work_tried, self.work_refused, self.work_due) = (0, 0, 0);
        } else if self.work_tried >= self.work.len() {
            self.work_tried = 0;
            if self.work_due <= self.now {
                self.work_due = self.now.saturating_add(self.after_refusals(self.work_refused));
                self.work_refused = self.work_refused.saturating_add(1);
            }
        }
    }

    fn next_told(&mut self) -> Option<Event> {
        if let Some(cookie) = self.next_done() {
            return Some(Event::Sent(cookie));
        }
        if let Some(cookie) = self.next_filled() {
            return Some(Event::Delivered(cookie));
        }
        self.next_report()
    }

    fn on_raw(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::Frame(frame) => return self.on_frame(&frame),
            Event::Sent(cookie) => self.on_raw_sent(cookie),
            Event::Delivered(cookie) => return self.on_raw_delivered(cookie),
            Event::Performed(..) => return Some(event),
            Event::Lost(peer, why) | Event::Down(peer, why) => self.on_raw_lost(peer.0, why),
            Event::Silent(peer, _) => self.ask_at_once(peer.0),
            Event::Up(_) => {}
            Event::Migrated(_, frame) => {
                // Of a link below this one, which makes no sense.
                if !frame.is_whole() {
                    self.raw.release(frame.id);
                }
            }
        }
        None
    }

    /// Where the clock stands. After a pause nobody is taken for dead before what came meanwhile has been heard.
    fn tick(&mut self, now: Instant) {
        let now = now.as_nanos().max(self.now);
        let patience = self.config.patience();
        if now.saturating_sub(self.now) > patience / 2 {
            self.grace = now.saturating_add(patience / 4);
        }
        if self.now == 0 {
            self.began = now;
        }
        self.listened = self.listened.saturating_add(now.saturating_sub(self.now).min(patience / 64));
        self.now = now;
    }
}

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

/// What the rails above see: limits leave room for the link's own bytes, and for those of a frame that has moved here.
fn attributes(raw: &Attributes) -> Attributes {
    let mut capabilities = raw.capabilities & Capabilities::SEND;
    capabilities |= Capabilities::SEND_INPLACE | Capabilities::FAILOVER_SUPPORT;
    capabilities |= raw.capabilities & (Capabilities::PROGRESS_THREAD | Capabilities::SINGLE_ADD_PROCS);
    capabilities |= raw.capabilities & Capabilities::NATIVE;
    let own = (HEADER + PREFIX) as u32;
    let eager_limit = raw.eager_limit.saturating_sub(own);
    let max_send_size = raw.max_send_size.saturating_sub(own);
    Attributes {
        capabilities,
        eager_limit,
        rendezvous_eager_limit: raw.rendezvous_eager_limit.min(eager_limit),
        min_fragment: raw.min_fragment.min(max_send_size),
        max_send_size,
        accelerator: AcceleratorLimits {
            max_send_size: raw.accelerator.max_send_size.saturating_sub(own),
            ..raw.accelerator
        },
        cache_size: 0,
        cache_bytes: 0,
        ..*raw
    }
}

const fn lane_of(byte: u8) -> Lane {
    match byte {
        0 => Lane::Control,
        1 => Lane::Eager,
        _ => Lane::Bulk,
    }
}

const _: () = assert!(Lane::Control as u8 == 0 && Lane::Eager as u8 == 1 && Lane::Bulk as u8 == 2);

/// How long each table is.
struct Sizes {
    peers: usize,
    cards: usize,
    ring: usize,
    bits: usize,
    slots: usize,
    slot: usize,
    long: usize,
    longest: usize,
    coming: usize,
}

impl Sizes {
    fn of(config: &Config, raw: &Attributes) -> Self {
        let peers = config.peers as usize;
        let longest = raw.max_send_size.max(raw.eager_limit) as usize;
        let room = Config::room(longest as u32);
        let ferry = usize::from(peers > 1);
        Self {
            peers,
            cards: peers.saturating_mul(config.card_bytes as usize),
            ring: peers.saturating_mul(config.window as usize),
            bits: peers.saturating_mul(3).saturating_mul(config.words()),
            slots: (config.slots as usize).saturating_add(config.control_slots as usize).saturating_add(ferry),
            slot: HEAD_ROOM.saturating_add(room),
            long: if longest > room { (config.long_slots as usize).saturating_add(ferry) } else { 0 },
            longest,
            coming: (raw.frames_kept as usize).saturating_add(config.deliveries as usize),
        }
    }
}

impl Config {
    /// Bytes that a link over `raw` takes from an arena at most.
    pub fn bytes<R: FullRail>(&self, raw: &R) -> usize {
        let config = self.sane(raw.attributes());
        let sizes = Sizes::of(&config, raw.attributes());
        [
            Arena::cost::<u8>(card::PREFIX.saturating_add(raw.card().len())),
            Arena::cost::<Path>(sizes.peers),
            Arena::cost::<u8>(sizes.cards),
            Arena::cost::<u32>(sizes.ring).saturating_mul(2),
            Arena::cost::<u64>(sizes.bits),
            Pool::<Kept>::cost(sizes.slots as u32),
            Memory::cost(sizes.slots, sizes.slot),
            Memory::cost(sizes.long, sizes.longest),
            Pool::<Coming>::cost(sizes.coming as u32),
            Arena::cost::<Progress>(sizes.coming),
            Memory::cost(sizes.coming, TAIL),
            Memory::cost(1, sizes.longest),
            Queue::cost(sizes.long),
            Queue::cost(sizes.slots),
            Queue::cost(sizes.coming),
            Queue::cost(sizes.peers).saturating_mul(4),
            Timers::cost(sizes.peers).saturating_mul(2),
            16, // of a block that begins anywhere
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }
}
