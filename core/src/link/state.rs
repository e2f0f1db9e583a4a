//! The data of a link. The behaviour of a link is in the files that import this one.

use core::cell::Cell;

use super::card::{self, Card};
use super::checksum::Checksum;
use super::clock::Clock;
use super::config::Config;
use super::counters::Counters;
use super::header::{HEADER, MIGRATION, PREFIX};
use super::in_flight::InFlightFrame;
use super::memory::Memory;
use super::numbers::Bits;
use super::path::ConnState;
use super::paths::{Paths, SEVERAL, start};
use super::peer_queue::PeerQueue;
use super::pending_delivery::{PARTIAL, PendingDelivery, Progress, REPEATS, TAIL};
use super::sizes::Sizes;
use super::timers::Timers;
use crate::arena::{Arena, OutOfMemory};
use crate::convertor::copy_slice;
use crate::pool::{Handle, Pool};
use crate::queue::Queue;
use crate::rail::{AcceleratorLimits, Attributes, COPIED, Capabilities, FullRail, LATER, Peer};

/// A rail that delivers each frame exactly once, over a rail that may not do so. See the [module](crate::link).
///
/// A link owns the rail below. Its tables are in the arena that [`new`](Self::new) was given, whose memory lives for `'m`. As
/// any rail, a link is used by one thread at a time.
#[derive(Debug)]
pub struct Link<'m, R, C> {
    pub(super) below: R,
    pub(super) checksum: C,
    pub(super) config: Config,
    pub(super) attributes: Attributes,
    pub(super) card: &'m [u8],
    pub(super) counters: Counters,
    pub(super) peers: Peers<'m>,
    /// Three sets of bits for each peer.
    bits: &'m mut [u64],
    pub(super) send: SendBuffers<'m>,
    pub(super) receive: ReceiveBuffers<'m>,
    pub(super) work: Work<'m>,
    pub(super) clock: Clock,
}

/// The table of peers. An endpoint is an index into it.
#[derive(Debug)]
pub(super) struct Peers<'m> {
    pub paths: Paths<'m>,
    /// The entries below this one were used at least once.
    pub touched: u32,
    /// The entries below `touched` that are free.
    pub free: PeerQueue<'m>,
    /// The cards of the peers for the rail below, each in `Config::card_bytes` bytes.
    pub cards: &'m mut [u8],
    /// How many sessions this side has begun.
    pub sessions: u64,
}

/// The frames that are kept until the peer has acknowledged them.
#[derive(Debug)]
pub(super) struct SendBuffers<'m> {
    /// The send window of each peer, a ring by number. An entry is the slot of a frame plus one, 0, or one of
    /// [`GAP`](super::in_flight::GAP) and [`MIGRATED_ENTRY`](super::in_flight::MIGRATED_ENTRY).
    pub window: &'m mut [u32],
    pub frames: Pool<'m, InFlightFrame>,
    /// The memory of each frame: its first bytes, then a copy of a short body.
    pub slots: Memory<'m>,
    /// The memory of long grants.
    pub long: Memory<'m>,
    pub long_free: Queue<'m>,
    /// The frame that was reserved and is not committed.
    pub draft: Handle,
    /// The frame in the slot beyond all others, which is kept for a frame that migrated here and found no other.
    ///
    /// Frames of a link that is down wait in its slots for room in another link. For another peer the two links may have the
    /// opposite roles. If both links were full, no frame could migrate. One slot beyond all others is enough: its frame gets
    /// acknowledged, which makes room.
    pub reserve_slot: Handle,
    /// How many peers have data frames that the link keeps.
    pub data_holders: u32,
    /// How many peers have control frames that the link keeps.
    pub control_holders: u32,
    /// Frames whose bodies are no longer read. [`Event::Sent`](crate::rail::Event::Sent) is due for each.
    pub done: Queue<'m>,
}

/// The frames that have arrived and are not finished.
#[derive(Debug)]
pub(super) struct ReceiveBuffers<'m> {
    pub pending: Pool<'m, PendingDelivery>,
    /// How many bytes of the body of each pending delivery the checksum covers so far.
    pub progress: &'m [Progress],
    /// A read found a body whose checksum is wrong.
    pub bad_body_found: Cell<bool>,
    /// Memory for the last bytes of short frames.
    pub tails: Memory<'m>,
    /// Memory for one body that does not fit its sink.
    pub scratch: Memory<'m>,
    /// The delivery that uses the scratch.
    pub scratch_of: Handle,
    /// Deliveries whose bodies are in their sinks. [`Event::Delivered`](crate::rail::Event::Delivered) is due for each.
    pub filled: Queue<'m>,
    /// The frame of the rail below that is being processed has to be released.
    pub holds_frame: bool,
    /// For each peer, the low words of the numbers that were skipped because another link brings their frames.
    pub migrated: &'m mut [u32],
    /// Peers whose frames this side refused. When there is room, they are told in turn.
    pub refused: PeerQueue<'m>,
}

/// The queues and timers of pending work.
#[derive(Debug)]
pub(super) struct Work<'m> {
    /// When each peer is to be sent an acknowledgement or another control frame.
    pub acks: Timers<'m>,
    /// When something is to be done for each peer if nothing arrives.
    pub timers: Timers<'m>,
    /// Peers to which frames wait, since the rail below had no room.
    pub refused: PeerQueue<'m>,
    /// Peers for which an event is due to the user.
    pub reports: PeerQueue<'m>,
    /// The count of polls.
    pub turn: u32,
    /// The rail below may have more events.
    pub more: bool,
    /// How many times in a row the rail below had room for none of the frames in `refused`.
    pub refusals: u8,
    /// How many of the peers in `refused` were tried in this round.
    pub tried: u32,
    /// A caller that sleeps need not try again before this time.
    pub retry_at: u64,
}

impl<'m, R: FullRail, C: Checksum> Link<'m, R, C> {
    /// A link over `below`, which has no peers yet. `checksum` sums headers and bodies.
    ///
    /// # Errors
    /// [`OutOfMemory`] where the arena is too small; [`Config::bytes`] returns the size that it needs.
    pub fn new(below: R, checksum: C, config: Config, arena: &mut Arena<'m>) -> Result<Self, OutOfMemory> {
        let config = config.sane(below.attributes());
        let sizes = Sizes::of(&config, below.attributes());
        let card = arena.table::<u8>(card::PREFIX.saturating_add(below.card().len()))?;
        let prefix = Card::of(&config).prefix();
        let (own, rest) = card.split_at_mut_checked(card::PREFIX).unwrap_or_default();
        copy_slice(own, &prefix);
        copy_slice(rest, below.card());
        Ok(Self {
            attributes: attributes(below.attributes()),
            config,
            card,
            counters: Counters::default(),
            peers: Peers::new(&sizes, arena)?,
            bits: arena.table(sizes.bits)?,
            send: SendBuffers::new(&sizes, arena)?,
            receive: ReceiveBuffers::new(&sizes, arena)?,
            work: Work::new(&sizes, arena)?,
            clock: Clock::default(),
            checksum,
            below,
        })
    }

    /// The counters since the link was made.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether a peer has answered at least once since it was added.
    pub fn has_answered(&self, peer: Peer) -> bool {
        self.peers.paths.iter().any(|path| {
            path.session.state != ConnState::Free && path.session.peer == peer.0 && path.session.known_to_peer
        })
    }

    /// The rail below.
    pub const fn raw(&self) -> &R {
        &self.below
    }

    /// The rail below, for functions that only this type of rail has. The caller must not send, poll or add peers by it.
    pub const fn raw_mut(&mut self) -> &mut R {
        &mut self.below
    }

    /// Ends the link without a goodbye, and returns the rail below as it is.
    pub fn into_raw(self) -> R {
        self.below
    }

    /// How many frames are kept until they are acknowledged, and how many have arrived and are not finished.
    pub const fn used(&self) -> [u32; 2] {
        [self.send.frames.used(), self.receive.pending.used()]
    }

    /// Whether the link may have several peers.
    #[inline(always)]
    pub(super) const fn has_several(&self) -> bool {
        SEVERAL && self.config.peers > 1
    }

    fn set_of_bits(&mut self, at: u32, set: usize) -> Bits<'_> {
        let words = self.config.words();
        let start = start(at, words.wrapping_mul(3)).wrapping_add(set.wrapping_mul(words));
        Bits(self.bits.get_mut(start..start.wrapping_add(words)).unwrap_or(&mut []))
    }

    /// The numbers that arrived, beyond the first one that did not.
    pub(super) fn received_bits(&mut self, at: u32) -> Bits<'_> {
        self.set_of_bits(at, 0)
    }

    /// The numbers that have a pending delivery.
    pub(super) fn pending_bits(&mut self, at: u32) -> Bits<'_> {
        self.set_of_bits(at, 1)
    }

    /// The numbers that were sent and are acknowledged.
    pub(super) fn acked_bits(&mut self, at: u32) -> Bits<'_> {
        self.set_of_bits(at, 2)
    }
}

impl<'m> Peers<'m> {
    fn new(sizes: &Sizes, arena: &mut Arena<'m>) -> Result<Self, OutOfMemory> {
        Ok(Self {
            paths: Paths::new(arena, sizes.peers)?,
            touched: 0,
            free: PeerQueue::new(arena, sizes.peers)?,
            cards: arena.table(sizes.cards)?,
            sessions: 0,
        })
    }
}

impl<'m> SendBuffers<'m> {
    fn new(sizes: &Sizes, arena: &mut Arena<'m>) -> Result<Self, OutOfMemory> {
        let mut long_free = Queue::none();
        if LATER {
            long_free = Queue::new(arena, sizes.long)?;
            (0..sizes.long as u32).for_each(|place| long_free.push(place));
        }
        Ok(Self {
            window: arena.table(sizes.windows)?,
            frames: Pool::new(arena, sizes.slots as u32)?,
            slots: Memory::new(arena, sizes.slots, sizes.slot)?,
            long: Memory::new(arena, sizes.long, sizes.longest)?,
            long_free,
            draft: Handle::NONE,
            reserve_slot: Handle::NONE,
            data_holders: 0,
            control_holders: 0,
            done: if LATER { Queue::new(arena, sizes.slots)? } else { Queue::none() },
        })
    }
}

impl<'m> ReceiveBuffers<'m> {
    fn new(sizes: &Sizes, arena: &mut Arena<'m>) -> Result<Self, OutOfMemory> {
        Ok(Self {
            pending: Pool::new(arena, sizes.pending as u32)?,
            progress: if PARTIAL { arena.table(sizes.pending)? } else { &[] },
            bad_body_found: Cell::new(false),
            tails: Memory::new(arena, if PARTIAL { sizes.pending } else { 0 }, TAIL)?,
            scratch: Memory::new(arena, usize::from(PARTIAL), sizes.longest)?,
            scratch_of: Handle::NONE,
            filled: if REPEATS { Queue::new(arena, sizes.pending)? } else { Queue::none() },
            holds_frame: false,
            migrated: arena.table(if MIGRATION { sizes.windows } else { 0 })?,
            refused: PeerQueue::new(arena, sizes.peers)?,
        })
    }
}

impl<'m> Work<'m> {
    fn new(sizes: &Sizes, arena: &mut Arena<'m>) -> Result<Self, OutOfMemory> {
        Ok(Self {
            acks: Timers::new(arena, sizes.peers)?,
            timers: Timers::new(arena, sizes.peers)?,
            refused: PeerQueue::new(arena, sizes.peers)?,
            reports: PeerQueue::new(arena, sizes.peers)?,
            turn: 0,
            more: false,
            refusals: 0,
            tried: 0,
            retry_at: 0,
        })
    }
}

/// The attributes of a link over a rail: the limits leave room for the link's header, and for the prefix of a migrated frame.
fn attributes(below: &Attributes) -> Attributes {
    let mut capabilities = below.capabilities & Capabilities::SEND;
    capabilities |= Capabilities::SEND_INPLACE;
    capabilities.set(Capabilities::FAILOVER_SUPPORT, MIGRATION);
    capabilities |= below.capabilities & (Capabilities::PROGRESS_THREAD | Capabilities::SINGLE_ADD_PROCS);
    capabilities |= below.capabilities & Capabilities::NATIVE;
    let own = (HEADER + PREFIX) as u32;
    let eager_limit = below.eager_limit.saturating_sub(own);
    let mut max_send_size = below.max_send_size.saturating_sub(own);
    let mut eager_limit = eager_limit;
    if !LATER {
        // Then all bodies are copied.
        max_send_size = max_send_size.min(COPIED as u32);
        eager_limit = eager_limit.min(COPIED as u32);
    }
    Attributes {
        capabilities,
        eager_limit,
        rendezvous_eager_limit: below.rendezvous_eager_limit.min(eager_limit),
        min_fragment: below.min_fragment.min(max_send_size),
        max_send_size,
        accelerator: AcceleratorLimits {
            max_send_size: below.accelerator.max_send_size.saturating_sub(own),
            ..below.accelerator
        },
        cache_size: 0,
        cache_bytes: 0,
        ..*below
    }
}
