//! The one-sided operations of one side: its tables, and the entry points that a module or an engine calls.

use zerocopy::FromZeros;

use super::answer::Answers;
use super::arrival::release;
use super::device;
use super::errors::Failure;
use super::frames::{ANSWER, DATA, DONE, EXPOSED, REQUEST};
use super::handle::RemoteMemory;
use super::operation::{Operation, Operations};
use super::registry::{DeregisterError, Registration, Registry};
use super::routes::{ANSWER_COOKIE, MAX_SLOTS, RMA_COOKIE, Routes};
use crate::arena::{Arena, OutOfMemory};
use crate::convertor::Span;
use crate::pool::Handle;
use crate::rail::access::Access;
use crate::rail::{Cookie, Endpoint, Frame, FullRail, Peer, RemoteBuffer};

/// Sizes of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Config {
    /// The most registrations of memory at a time.
    pub regions: u32,
    /// The most operations of this side at a time.
    pub operations: u32,
    /// The RMA window: the most unanswered requests of one peer; at least 1.
    pub window: u16,
}

impl Default for Config {
    /// Sizes for a handful of windows and threads.
    fn default() -> Self {
        Self { regions: 16, operations: 32, window: 8 }
    }
}

impl Config {
    /// No one-sided operations: memory cannot be registered, no operation can be begun, and the tables take no memory.
    pub const OFF: Self = Self { regions: 0, operations: 0, window: 0 };

    /// The number of slots for answers: a window for each peer, so a slot is never missing.
    pub const fn answers(&self, peers: u32) -> u32 {
        if self.regions == 0 {
            return 0; // no memory is registered, so any request violates the protocol
        }
        peers.saturating_mul(self.window() as u32)
    }

    /// Entries for peers: one for each, if either side can have operations.
    const fn peer_entries(&self, peers: u32) -> usize {
        if self.regions == 0 && self.operations == 0 { 0 } else { peers as usize }
    }

    const fn window(&self) -> u16 {
        if self.window == 0 { 1 } else { self.window }
    }

    /// The most bytes that the tables for this number of peers take from an arena.
    pub const fn bytes(&self, peers: u32) -> usize {
        Registry::cost(self.regions)
            .saturating_add(Operations::cost(self.operations))
            .saturating_add(Answers::cost(self.answers(peers)))
            .saturating_add(Arena::cost::<PeerCounts>(self.peer_entries(peers)))
    }
}

crate::counters! {
    /// Counts of one-sided operations since set-up.
    #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
    #[cfg_attr(feature = "defmt", derive(defmt::Format))]
    pub struct Counters {
        /// Requests of peers that were done.
        pub served: u64,
        /// Requests of peers that were denied.
        pub denied: u64,
        /// Requests that were dropped because the peer already had as many unanswered requests as the window allows. A fault of
        /// the peer.
        pub window_violations: u64,
        /// Frames that were dropped because their fields are wrong.
        pub malformed: u64,
        /// Answers that were dropped because no operation waits for them.
        pub stale: u64,
        /// Operations of this side that a rail did at once, since it maps the memory of the peer.
        pub at_once: u64,
        /// Pieces of operations that were given to a rail's device.
        pub by_device: u64,
        /// Pieces of puts and gets that were read by single copy.
        pub single_copies: u64,
        /// Pieces that could not be read by single copy, and were requested again.
        pub single_copy_failures: u64,
    }
}

/// The counts of operations and requests between this side and one peer.
#[derive(Clone, Copy, FromZeros, Debug)]
pub(super) struct PeerCounts {
    /// Operations of this side whose end was not reported yet.
    pub(super) operations: u32,
    /// Requests of this side without an answer.
    pub(super) unanswered: u32,
    /// Requests of the peer whose answers have not left yet.
    pub(super) owed: u32,
    /// A frame was sent to the peer, or came from it.
    pub(super) contacted: bool,
}

/// One-sided operations of one side, as initiator and as target.
#[derive(Debug)]
pub(crate) struct Rma<'m> {
    pub(super) registry: Registry<'m>,
    pub(super) operations: Operations<'m>,
    pub(super) answers: Answers<'m>,
    pub(super) peers: &'m mut [PeerCounts],
    pub(super) window: u16,
    pub(super) counters: Counters,
}

impl<'m> Rma<'m> {
    pub fn new(config: Config, arena: &mut Arena<'m>, peers: u32) -> Result<Self, OutOfMemory> {
        if !super::ENABLED {
            return Ok(Self {
                registry: Registry::none(),
                operations: Operations::none(),
                answers: Answers::none(),
                peers: &mut [],
                window: 0,
                counters: Counters::default(),
            });
        }
        Ok(Self {
            registry: Registry::new(arena, config.regions)?,
            operations: Operations::new(arena, config.operations.min(MAX_SLOTS))?,
            answers: Answers::new(arena, config.answers(peers).min(MAX_SLOTS))?,
            peers: arena.table(config.peer_entries(peers))?,
            window: config.window(),
            counters: Counters::default(),
        })
    }

    /// Registers memory, for the peer `only` or for all peers. `None`: no slot is free.
    ///
    /// If `rail` has operations of its own, the memory is also registered with it. `rail` comes with the rights that its device
    /// may give to peers.
    pub fn register<R: FullRail>(
        &mut self,
        rail: Option<(&mut R, Access)>,
        memory: Span,
        access: Access,
        only: Option<Peer>,
    ) -> Option<Registration> {
        let handle = self.registry.register(memory, access, only)?;
        if let Some(native) = rail.and_then(|(rail, own)| device::register(rail, &memory, access & own, only)) {
            self.registry.set_native(handle, native);
        }
        Some(Registration(handle))
    }

    /// Ends a registration. Returns whether the memory was exposed: then all rails have to
    /// [revoke](crate::rail::SingleCopy::revoke_exposed) exposed memory.
    pub fn deregister<R: FullRail>(
        &mut self,
        rail: Option<&mut R>,
        registration: Registration,
    ) -> Result<bool, DeregisterError> {
        self.deny_queued_gets(registration.0);
        let region = self.registry.deregister(registration.0)?;
        if let (Some(native), Some(rail)) = (region.native(), rail) {
            rail.deregister(native.region);
        }
        Ok(region.is_exposed())
    }

    /// The device does not reach a peer's memory any more, but other rails reach the peer. Operations that the device has begun
    /// end as lost, since it is not known whether they were done.
    pub fn lose_device(&mut self, peer: Peer) {
        self.fail(peer, Failure::Lost, |state| state.in_device != 0);
    }

    /// The handle of registered memory for peers.
    pub fn remote(&self, registration: Registration) -> Option<RemoteMemory> {
        let region = self.registry.get(registration.0)?;
        let memory = region.memory;
        let base = memory.as_contiguous().map_or(0, |(base, _)| base as usize as u64);
        Some(RemoteMemory::new(registration.0, base, memory.len(), self.window, region.native()))
    }

    /// Whether a completion of a rail belongs to a one-sided operation.
    pub const fn is_own(cookie: Cookie) -> bool {
        cookie.0 & RMA_COOKIE != 0
    }

    /// Takes in a frame with the tag [`BTL_BASE`](crate::rail::tags::BTL_BASE) from `rail`, and releases it when its body was
    /// used. `from` is the rail's endpoint of the sender. Answers are only queued: [`send_queued`](Self::send_queued) sends
    /// them.
    pub fn on_frame<R: FullRail>(&mut self, rail: &mut R, from: Option<Endpoint>, frame: &Frame) {
        if let Some(counts) = self.peers.get_mut(frame.from.0 as usize) {
            counts.contacted = true;
        }
        match frame.head().first() {
            Some(&(DONE | DATA | EXPOSED)) if frame.head().len() >= ANSWER => self.on_answer(rail, from, frame),
            Some(_) if frame.head().len() >= REQUEST => self.on_request(rail, from, frame),
            _ => self.drop_malformed(rail, frame),
        }
    }

    /// A rail has delivered the body of a frame.
    pub fn on_delivered(&mut self, cookie: Cookie) {
        let handle = Handle::from_bits(cookie.0 & !(RMA_COOKIE | ANSWER_COOKIE));
        if cookie.0 & ANSWER_COOKIE != 0 {
            self.on_put_delivered(handle);
        } else {
            self.on_rail_done(handle);
        }
    }

    /// Sends requests and answers that wait, as far as rails and windows have room.
    pub fn send_queued(&mut self, routes: &mut impl Routes) {
        self.send_answers(routes);
        self.send_requests(routes);
    }

    /// Whether a request or an answer waits for room.
    pub fn has_queued(&self) -> bool {
        !self.answers.is_idle() || self.operations.needs_retry
    }

    /// Whether nothing is to be done until a rail reports an event: no frame waits for room, and no end waits to be reported.
    pub fn is_idle(&self) -> bool {
        !self.has_queued() && self.operations.due() == 0
    }

    /// Whether all operations that were begun to a peer, or to all peers, have ended and were reported: `btl_flush`.
    pub fn is_flushed(&self, to: Option<Peer>) -> bool {
        match to {
            None => self.operations.used()[0] == 0,
            Some(to) => self.peers.get(to.0 as usize).is_none_or(|counts| counts.operations == 0),
        }
    }

    /// The operations whose end was not reported yet, and the peer of each.
    pub(crate) fn in_progress(&self) -> impl Iterator<Item = (Operation, Peer)> {
        let slots = &self.operations.slots;
        (0..slots.touched()).filter_map(|slot| Some((Operation(slots.handle(slot)?), Peer(slots.at(slot)?.peer))))
    }

    /// Whether a frame was sent to a peer, or came from it.
    pub(crate) fn has_contact(&self, peer: Peer) -> bool {
        self.peers.get(peer.0 as usize).is_some_and(|counts| counts.contacted)
    }

    /// A peer was lost or removed, and no rail touches memory on its behalf any more: ends the operations on its memory, and
    /// forgets its requests.
    pub fn forget(&mut self, peer: Peer, failure: Failure) {
        self.fail_all(peer, failure);
        self.forget_requests(peer);
        self.registry.revoke(peer);
        if let Some(counts) = self.peers.get_mut(peer.0 as usize) {
            // Its operations count until their ends are reported.
            (counts.unanswered, counts.owed, counts.contacted) = (0, 0, false);
        }
    }

    /// The number of operations that have ended, and whose end was not reported yet.
    pub const fn due(&self) -> u32 {
        self.operations.due()
    }

    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Slots in use and all slots: of registered memory, of operations, and of answers.
    pub const fn used(&self) -> [[u32; 2]; 3] {
        let Self { registry, operations, answers, .. } = self;
        [[registry.used(), registry.capacity()], operations.used(), answers.used()]
    }

    /// Reads memory that a peer has exposed, and counts whether that worked.
    ///
    /// # Safety
    /// As for [`SingleCopy::read_exposed`](crate::rail::SingleCopy::read_exposed).
    pub(super) unsafe fn read_exposed<R: FullRail>(
        &mut self,
        rail: &mut R,
        from: Option<Endpoint>,
        buffer: Option<RemoteBuffer>,
        sink: Span,
    ) -> bool {
        // SAFETY: passed on from the caller.
        let is_read = from.zip(buffer).is_some_and(|(from, buffer)| unsafe { rail.read_exposed(from, &buffer, sink) });
        let count = if is_read { &mut self.counters.single_copies } else { &mut self.counters.single_copy_failures };
        *count = count.wrapping_add(1);
        is_read
    }

    pub(super) fn drop_malformed<R: FullRail>(&mut self, rail: &mut R, frame: &Frame) {
        self.counters.malformed = self.counters.malformed.wrapping_add(1);
        release(rail, frame);
    }
}
