//! One-sided operations of one side: the tables, and which part does what.

use zerocopy::FromZeros;

use super::answer::Answers;
use super::arrival::release;
use super::device;
use super::errors::Failure;
use super::frames::{ANSWER, DATA, DONE, LENT, REQUEST};
use super::handle::RemoteMemory;
use super::operation::Operations;
use super::registry::{DeregisterError, Registration, Registry};
use super::ways::{COOKIE, OF_ANSWER, SLOTS, Ways};
use crate::arena::{Arena, OutOfMemory};
use crate::convertor::Span;
use crate::pool::Handle;
use crate::rail::access::Access;
use crate::rail::{Cookie, Endpoint, Frame, FullRail, Peer, RemoteBuffer};

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
pub(super) struct Account {
    /// Operations of this side that are not finished.
    pub(super) operations: u32,
    /// Requests of this side that are not answered.
    pub(super) unanswered: u32,
    /// Requests of the peer that are not answered.
    pub(super) owed: u32,
    /// A frame has gone to the peer, or come from it.
    pub(super) met: bool,
}

/// One-sided operations of one side, as initiator and as target.
#[derive(Debug)]
pub(crate) struct Rma<'m> {
    pub(super) registry: Registry<'m>,
    pub(super) operations: Operations<'m>,
    pub(super) answers: Answers<'m>,
    pub(super) accounts: &'m mut [Account],
    pub(super) window: u16,
    pub(super) counters: Counters,
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
        if let Some(native) = rail.and_then(|(rail, own)| device::register(rail, &memory, access & own, only)) {
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
    pub(super) unsafe fn read_exposed<R: FullRail>(
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

    pub(super) fn drop_malformed<R: FullRail>(&mut self, rail: &mut R, frame: &Frame) {
        self.counters.malformed = self.counters.malformed.wrapping_add(1);
        release(rail, frame);
    }
}
