//! The data of a link. What a link does stands in the files that import this one.

use core::cell::Cell;

use super::card::{self, Card};
use super::checksum::Checksum;
use super::config::Config;
use super::counters::Counters;
use super::header::{HEADER, PREFIX};
use super::in_flight::Kept;
use super::memory::Memory;
use super::numbers::Bits;
use super::path::{Path, State};
use super::pending_delivery::{Coming, Progress, TAIL};
use super::sizes::Sizes;
use super::timers::Timers;
use crate::arena::{Arena, OutOfMemory};
use crate::pool::{Handle, Pool};
use crate::queue::Queue;
use crate::rail::{AcceleratorLimits, Attributes, Capabilities, FullRail, Peer};

/// A rail that delivers each frame exactly once, over one that need not. See the [module](crate::link).
#[derive(Debug)]
pub struct Link<'m, R, C> {
    pub(super) raw: R,
    pub(super) sums: C,
    pub(super) config: Config,
    pub(super) attributes: Attributes,
    pub(super) card: &'m [u8],
    pub(super) counters: Counters,

    pub(super) paths: &'m mut [Path],
    /// Paths below this were used at least once; those of them that are free.
    pub(super) touched: u32,
    pub(super) free: Queue<'m>,
    pub(super) cards: &'m mut [u8],
    pub(super) sessions: u64,

    /// Window of each path: slots of kept frames by number, plus one.
    pub(super) ring: &'m mut [u32],
    /// Numbers of each path that were passed over, since another link brings their frames: low words.
    pub(super) away: &'m mut [u32],
    /// Three sets of bits for each path.
    pub(super) bits: &'m mut [u64],
    pub(super) kept: Pool<'m, Kept>,
    pub(super) slots: Memory<'m>,
    pub(super) long: Memory<'m>,
    pub(super) long_free: Queue<'m>,
    pub(super) draft: Handle,
    /// The frame in the place that is kept for one that was moved here, for which there was no other.
    ///
    /// Frames of a dead link wait in its slots for room in another, and it may be the other way round for another peer: if both
    /// are full, neither could begin. One place beyond all others is enough: who has it is acknowledged, and makes room.
    pub(super) ferry: Handle,
    /// Peers for which data frames are kept, and those for which control frames are.
    pub(super) data_holders: u32,
    pub(super) control_holders: u32,
    /// Bodies to tell of that are read no more.
    pub(super) done: Queue<'m>,

    pub(super) coming: Pool<'m, Coming>,
    pub(super) progress: &'m [Progress],
    /// A look found a bad body.
    pub(super) spoilt: Cell<bool>,
    pub(super) tails: Memory<'m>,
    pub(super) scratch: Memory<'m>,
    pub(super) scratch_of: Handle,
    /// Bodies to tell of that are in their sinks.
    pub(super) filled: Queue<'m>,
    /// The raw rail's frame that is being looked at is to be given back.
    pub(super) holds: bool,

    /// Paths of which frames were refused, to be told of room in turn.
    pub(super) refused: Queue<'m>,
    /// When paths tell what came.
    pub(super) acks: Timers<'m>,
    /// Paths with frames for which the raw rail had no room.
    pub(super) work: Queue<'m>,
    pub(super) reports: Queue<'m>,
    pub(super) timers: Timers<'m>,
    /// The last time that was told, in nanoseconds.
    pub(super) now: u64,
    /// No peer is dead before this: nobody listened for a while.
    pub(super) grace: u64,
    /// When the time was told first: what happened before did not happen long ago.
    pub(super) began: u64,
    /// When the raw rail last had nothing more to say, and for how long it was listened to since: pauses do not count.
    pub(super) heard_all: u64,
    pub(super) listened: u64,
    pub(super) turn: u32,
    /// The raw rail may have more.
    pub(super) more: bool,
    /// Times in a row that the raw rail had room for nothing of the work, and how much of it was tried this time.
    pub(super) work_refused: u8,
    pub(super) work_tried: u32,
    /// Before this, to try again is of no use to a caller that sleeps.
    pub(super) work_due: u64,
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
    pub(super) fn received_bits(&mut self, at: u32) -> Bits<'_> {
        self.set_of_bits(at, 0)
    }

    /// Numbers of which there is a record.
    pub(super) fn busy_bits(&mut self, at: u32) -> Bits<'_> {
        self.set_of_bits(at, 1)
    }

    /// Numbers that left and are acknowledged.
    pub(super) fn out_bits(&mut self, at: u32) -> Bits<'_> {
        self.set_of_bits(at, 2)
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
