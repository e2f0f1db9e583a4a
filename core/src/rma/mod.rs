//! One-sided operations: memory that peers may read, write and change without anybody there receiving anything.
//!
//! Memory is registered with rights ([`Access`]), which yields a handle for its owner ([`Registration`]) and one for peers
//! ([`RemoteMemory`]), to be sent to them in whatever way. With that they put, get, and use atomics on words.
//!
//! # Emulation
//! Rails that only send have all of it by active messages (`MCA_BTL_FLAGS_PUT_AM`, `GET_AM`, `ATOMIC_AM_FOP`): the initiator
//! sends requests, the target does them when it makes progress, and answers each. So completion at the initiator means done at
//! the target (CHECKLIST B44), and atomics, done by the target's processor, are consistent with its own (`GLOB`).
//!
//! A long put or get is split into as many requests as the rail's frames want. A target keeps in mind a fixed number of
//! requests for each peer, the *window*, which every [`RemoteMemory`] tells; an initiator has no more unanswered. So there is
//! always a slot for an answer, and who has none to spare is one that breaks the rules: its requests are dropped and counted.
//! Answers that find no room on the rail wait in their slots, and requests that find none wait with their operation: whatever
//! is full, frames are taken in, so nobody waits for one who waits for them.
//!
//! # Rails that do it themselves
//! Where a rail has operations of its own ([`native`](crate::rail::native)), memory is registered with it, too, and whatever it can do
//! goes that way; the rest is emulated. A window's atomics have one mechanism: the device's where these do not agree with the
//! processor's, and then all of them, so that none is a wrong answer; what the device lacks is done by its compare and swap.
//!
//! # Loans
//! Where the rail [exposes memory](crate::rail::SingleCopy::expose), as shared memory does by way of the kernel, requests and answers bring a loan in the
//! place of long data, and the other side fetches the bytes from where they lie: the target those of a put, once it has checked
//! rights and bounds, and the initiator those of a get. What cannot be fetched is asked for once more, in frames. Memory that peers
//! were lent is recalled when it is deregistered, so what they fetch later is void, and the get is denied.
//!
//! Nothing is trusted: slot, generation, rights and bounds are checked by the target for each request, and an initiator takes
//! no byte beyond what it asked for.
//!
//! ```
//! use towline_core::arena::Arena;
//! use towline_core::btl::endpoint::Proc;
//! use towline_core::btl::module::{Btl, Config, Terms};
//! use towline_core::rma::{Access, Atomic, AtomicFlags, AtomicOp};
//! use towline_core::rail::{Rail, Unreachable, loopback::Hub};
//! use towline_core::convertor::Span;
//! use towline_core::time::Instant;
//!
//! let (mut queues, mut block) = ([0u8; 4096], vec![0u8; 65536]);
//! let hub = Hub::new(&mut Arena::new(&mut queues), 1, 8, 128).unwrap();
//! let rail = hub.rail(0).unwrap();
//! let card = rail.card().to_vec();
//! let mut btl = Btl::new(Config::default(), &mut Arena::new(&mut block), rail).unwrap();
//! let mut myself = [Err(Unreachable::NoCard)];
//! btl.add_procs(&[Proc { id: 0, card: &card }], &mut myself, None);
//! let myself = myself[0].unwrap();
//!
//! let mut words = [0u64, 5];
//! // SAFETY: the words are left alone until the memory is deregistered.
//! let window = unsafe { btl.register_mem(None, words.as_mut_ptr().cast(), 16, Access::ANY) }.unwrap();
//! let remote = btl.remote_memory(window).unwrap(); // its bytes go to those who are to use it
//! let data = 40u64.to_ne_bytes();
//! // SAFETY: the data stays until the put is flushed.
//! unsafe { btl.put(myself, Span::of(&data), &remote, 0, Terms::NONE) }.unwrap();
//! let add = Atomic::Op(AtomicOp::Add, 2);
//! btl.atomic(myself, add, AtomicFlags::empty(), &remote, 8, Terms::NONE).unwrap();
//! while !btl.flush(Some(myself)) {
//!     btl.progress(Instant::ZERO);
//! }
//! btl.deregister_mem(window).unwrap();
//! assert_eq!(words, [40, 7]);
//! ```

mod errors;
mod frames;
mod handle;
mod initiator;
mod native;
mod registry;
mod target;

use zerocopy::FromZeros;

pub use self::errors::{BeginError, Denied, Failure};
use self::frames::{ANSWER, DATA, DONE, LENT, REQUEST};
pub use self::handle::{HANDLE_BYTES, RemoteMemory};
use self::initiator::Operations;
pub use self::initiator::{Finished, Operation, Transfer};
pub(super) use self::native::device_owns;
use self::registry::Registry;
pub use self::registry::{DeregisterError, Registration};
use self::target::Answers;
use crate::arena::{Arena, OutOfMemory};
use crate::convertor::Span;
use crate::pool::Handle;
use crate::queue::Queue;
pub use crate::rail::access::Access;
pub use crate::rail::atomics::{Atomic, AtomicFlags, AtomicOp, AtomicSupport, EMULATED};
use crate::rail::native::OneSided;
use crate::rail::{Cookie, Endpoint, Frame, FullRail, HEAD, Peer, REMOTE_BUFFER_BYTES, RemoteBuffer};

/// Sizes of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Config {
    /// Pieces of memory that are registered at a time.
    pub regions: u32,
    /// Operations of this side that are under way.
    pub operations: u32,
    /// Requests of one peer that this side keeps in mind; at least 1.
    pub window: u16,
}

impl Default for Config {
    /// For a handful of windows and threads.
    fn default() -> Self {
        Self { regions: 16, operations: 32, window: 8 }
    }
}

impl Config {
    /// Nothing can be registered or begun, and no memory is taken.
    pub const OFF: Self = Self { regions: 0, operations: 0, window: 0 };

    /// Slots for answers: as many as all peers together may make use of, so that none is ever missing.
    pub const fn answers(&self, peers: u32) -> u32 {
        if self.regions == 0 {
            return 0; // there is nothing to ask for: whoever does so breaks the rules
        }
        peers.saturating_mul(self.window() as u32)
    }

    /// How it stands with each peer, where anything can be asked for by either side.
    const fn accounts(&self, peers: u32) -> usize {
        if self.regions == 0 && self.operations == 0 { 0 } else { peers as usize }
    }

    const fn window(&self) -> u16 {
        if self.window == 0 { 1 } else { self.window }
    }

    /// Bytes of memory taken from an arena at most, with so many peers.
    pub const fn bytes(&self, peers: u32) -> usize {
        Registry::cost(self.regions)
            .saturating_add(Operations::cost(self.operations))
            .saturating_add(Answers::cost(self.answers(peers)))
            .saturating_add(Arena::cost::<Account>(self.accounts(peers)))
    }
}

/// What happened so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Counters {
    /// Requests of peers that were done.
    pub served: u64,
    /// Requests of peers that were denied.
    pub denied: u64,
    /// Requests dropped because the peer has more unanswered than it was told that it may.
    pub beyond_window: u64,
    /// Frames dropped because they make no sense.
    pub malformed: u64,
    /// Answers dropped because nobody waits for them.
    pub stale: u64,
    /// Operations of this side that were over as soon as they were begun: a rail reached the memory itself.
    pub at_once: u64,
    /// Pieces of operations that a rail's device was given, and is to tell of.
    pub by_device: u64,
    /// Pieces of puts and gets that were fetched from where they lay.
    pub fetched: u64,
    /// Pieces that could not be fetched, and were asked for again.
    pub unfetched: u64,
}

/// How it stands with a peer.
#[derive(Clone, Copy, FromZeros, Debug)]
struct Account {
    /// Operations of this side that are not finished.
    operations: u32,
    /// Requests of this side that are not answered.
    unanswered: u32,
    /// Requests of the peer that are not answered.
    owed: u32,
    /// A frame has gone to the peer, or come from it.
    met: bool,
}

/// By which rail a peer is reached.
pub(crate) trait Ways {
    type Rail: FullRail;

    /// `None`: by none now. Where that is for ever, the peer is about to be forgotten.
    fn way(&mut self, to: Peer) -> Option<Way<'_, Self::Rail>>;

    /// The one whose device is to reach the peer's memory, which is the one that the peer has registered it with. `None`: none
    /// does so now.
    fn device(&mut self, to: Peer) -> Option<Way<'_, Self::Rail>>;
}

/// A rail to a peer.
pub(crate) struct Way<'r, R> {
    pub rail: &'r mut R,
    pub endpoint: Endpoint,
    /// The longest frames of the eager lane, and at all.
    pub eager: u32,
    pub longest: u32,
    /// What the rail may be asked to do itself.
    pub one_sided: OneSided,
}

/// Bytes that are lent at a time, at most: whoever fetches them does nothing else meanwhile.
const MOST_LENT: u64 = 1 << 20;

const _: () = assert!(
    REQUEST + REMOTE_BUFFER_BYTES <= HEAD && ANSWER + REMOTE_BUFFER_BYTES <= HEAD,
    "a loan comes with the header, whole"
);

/// In cookies: it is one of these, and of an answer. No pool has so many slots, and an engine's own cookies have the second
/// bit alone.
const COOKIE: u64 = 1 << 30;
const OF_ANSWER: u64 = 1 << 31;
/// Slots that such cookies can name.
const SLOTS: u32 = 1 << 30;

/// One-sided operations of one side, as initiator and as target.
#[derive(Debug)]
pub(crate) struct Rma<'m> {
    registry: Registry<'m>,
    operations: Operations<'m>,
    answers: Answers<'m>,
    accounts: &'m mut [Account],
    window: u16,
    counters: Counters,
}

impl<'m> Rma<'m> {
    pub fn new(config: Config, arena: &mut Arena<'m>, peers: u32) -> Result<Self, OutOfMemory> {
        Ok(Self {
            registry: Registry::new(arena, config.regions)?,
            operations: Operations::new(arena, config.operations.min(SLOTS))?,
            answers: Answers::new(arena, config.answers(peers).min(SLOTS))?,
            accounts: arena.table(config.accounts(peers))?,
            window: config.window(),
            counters: Counters::default(),
        })
    }

    /// Registers memory, for `only` that peer or for all. `None`: no slot is free.
    /// With the rail that peers use it by, too, where it does something itself; for which of these rights is its affair.
    pub fn register<R: FullRail>(
        &mut self,
        rail: Option<(&mut R, Access)>,
        memory: Span,
        access: Access,
        only: Option<Peer>,
    ) -> Option<Registration> {
        let handle = self.registry.register(memory, access, only)?;
        if let Some(native) = rail.and_then(|(rail, own)| native::register(rail, &memory, access & own, only)) {
            self.registry.keep(handle, native);
        }
        Some(Registration(handle))
    }

    /// Tells whether peers may still fetch from the memory: then all rails have to [recall](Rail::recall) what they lent.
    pub fn deregister<R: FullRail>(
        &mut self,
        rail: Option<&mut R>,
        registration: Registration,
    ) -> Result<bool, DeregisterError> {
        self.deny_what_waits(registration.0);
        let region = self.registry.deregister(registration.0)?;
        if let (Some(native), Some(rail)) = (region.native(), rail) {
            rail.deregister(native.region);
        }
        Ok(region.was_lent())
    }

    /// A peer's device is not reached any more, though the peer is: what it had in hand may be done or not.
    pub fn lose_device(&mut self, peer: Peer) {
        self.fail(peer, Failure::Lost, |state| state.in_device != 0);
    }

    /// The handle for peers.
    pub fn remote(&self, registration: Registration) -> Option<RemoteMemory> {
        let region = self.registry.get(registration.0)?;
        let memory = region.memory;
        let base = memory.as_contiguous().map_or(0, |(base, _)| base as usize as u64);
        Some(RemoteMemory::new(registration.0, base, memory.len(), self.window, region.native()))
    }

    /// Whether a completion of the rail is one of these.
    pub const fn is_own(cookie: Cookie) -> bool {
        cookie.0 & COOKIE != 0
    }

    /// Takes a frame of [`BTL_BASE`](crate::rail::tags::BTL_BASE) that `rail` has brought, which calls its sender `from`, and releases it
    /// sooner or later. What it gives cause to send waits for [`push_out`](Self::push_out).
    pub fn take<R: FullRail>(&mut self, rail: &mut R, from: Option<Endpoint>, frame: &Frame) {
        if let Some(account) = self.accounts.get_mut(frame.from.0 as usize) {
            account.met = true;
        }
        match frame.head().first() {
            Some(&(DONE | DATA | LENT)) if frame.head().len() >= ANSWER => self.take_answer(rail, from, frame),
            Some(_) if frame.head().len() >= REQUEST => self.take_request(rail, from, frame),
            _ => self.drop_malformed(rail, frame),
        }
    }

    /// The bytes that a rail was asked to deliver are all there.
    pub fn delivered(&mut self, cookie: Cookie) {
        let handle = Handle::from_bits(cookie.0 & !(COOKIE | OF_ANSWER));
        if cookie.0 & OF_ANSWER != 0 {
            self.body_is_in(handle);
        } else {
            self.data_is_in(handle);
        }
    }

    /// Sends what waits: requests and answers, as far as rails and windows have room.
    pub fn push_out(&mut self, ways: &mut impl Ways) {
        self.send_answers(ways);
        self.send_requests(ways);
    }

    /// Whether there is something to send as soon as there is room.
    pub fn has_to_send(&self) -> bool {
        !self.answers.is_idle() || self.operations.wants_room
    }

    /// Whether there is nothing to do before something comes in.
    pub fn is_idle(&self) -> bool {
        !self.has_to_send() && self.operations.due() == 0
    }

    /// Whether all that was begun to a peer, or to all, is complete: `btl_flush`.
    pub fn is_flushed(&self, to: Option<Peer>) -> bool {
        match to {
            None => self.operations.used()[0] == 0,
            Some(to) => self.accounts.get(to.0 as usize).is_none_or(|account| account.operations == 0),
        }
    }

    /// Whether a frame has gone to a peer, or come from it.
    pub(crate) fn has_met(&self, peer: Peer) -> bool {
        self.accounts.get(peer.0 as usize).is_some_and(|account| account.met)
    }

    /// A peer is gone, and no rail touches memory on its behalf any more: ends its operations, forgets its requests.
    pub fn forget(&mut self, peer: Peer, failure: Failure) {
        self.fail_all(peer, failure);
        self.forget_requests(peer);
        self.registry.revoke(peer);
        if let Some(account) = self.accounts.get_mut(peer.0 as usize) {
            // Its operations are finished when they are told.
            (account.unanswered, account.owed, account.met) = (0, 0, false);
        }
    }

    /// Operations that are over and were not told yet.
    pub const fn due(&self) -> u32 {
        self.operations.due()
    }

    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Slots in use and in all: of memory, operations and answers.
    pub const fn used(&self) -> [[u32; 2]; 3] {
        let Self { registry, operations, answers, .. } = self;
        [[registry.used(), registry.capacity()], operations.used(), answers.used()]
    }

    /// Fetches what a peer has lent, and counts whether that worked.
    ///
    /// # Safety
    /// As for [`SingleCopy::read_exposed`](crate::rail::SingleCopy::read_exposed).
    unsafe fn read_exposed<R: FullRail>(
        &mut self,
        rail: &mut R,
        from: Option<Endpoint>,
        loan: Option<RemoteBuffer>,
        sink: Span,
    ) -> bool {
        // SAFETY: passed on from the caller.
        let is_there = from.zip(loan).is_some_and(|(from, loan)| unsafe { rail.read_exposed(from, &loan, sink) });
        let count = if is_there { &mut self.counters.fetched } else { &mut self.counters.unfetched };
        *count = count.wrapping_add(1);
        is_there
    }

    fn drop_malformed<R: FullRail>(&mut self, rail: &mut R, frame: &Frame) {
        self.counters.malformed = self.counters.malformed.wrapping_add(1);
        release(rail, frame);
    }
}

/// The loan behind a header of `skip` bytes, if that is all there is.
fn loan_of(frame: &Frame, skip: usize) -> Option<RemoteBuffer> {
    if !frame.is_whole() || frame.len as usize != skip.saturating_add(REMOTE_BUFFER_BYTES) {
        return None;
    }
    frame.head().get(skip..)?.first_chunk().copied().map(RemoteBuffer)
}

/// Gives a frame back that the rail still holds.
fn release<R: FullRail>(rail: &mut R, frame: &Frame) {
    if !frame.is_whole() {
        rail.release(frame.id);
    }
}

/// Puts the body of a frame, behind `skip` bytes, into memory; see [`Rail::deliver`](crate::rail::Rail::deliver).
///
/// # Safety
/// As for [`Rail::deliver`](crate::rail::Rail::deliver).
unsafe fn deliver<R: FullRail>(
    rail: &mut R,
    frame: &Frame,
    skip: usize,
    sink: Span,
    cookie: Cookie,
) -> crate::rail::Delivery {
    if !frame.is_whole() {
        // SAFETY: passed on from the caller.
        return unsafe { rail.deliver(frame.id, skip, sink, cookie) };
    }
    let body = frame.head().get(skip..frame.len as usize).unwrap_or(&[]);
    // SAFETY: the body is a slice of the frame's own bytes; the caller vouches for the sink.
    unsafe { sink.unpack(body.as_ptr(), body.len()) };
    crate::rail::Delivery::Done
}
