//! The sizes of a link's tables, and how much memory a link takes.

use super::card;
use super::config::Config;
use super::header::MIGRATION;
use super::in_flight::{HEAD_ROOM, InFlightFrame};
use super::memory::Memory;
use super::paths::Paths;
use super::peer_queue::PeerQueue;
use super::pending_delivery::{PARTIAL, PendingDelivery, Progress, REPEATS, TAIL};
use super::timers::Timers;
use crate::arena::Arena;
use crate::pool::Pool;
use crate::queue::Queue;
use crate::rail::{Attributes, FullRail, LATER};

/// How many entries each table has, and how many bytes each piece of memory.
pub(super) struct Sizes {
    pub peers: usize,
    /// Bytes of all cards.
    pub cards: usize,
    /// Entries of all windows.
    pub windows: usize,
    /// Words of all sets of bits.
    pub bits: usize,
    pub slots: usize,
    /// Bytes of one slot.
    pub slot: usize,
    /// How many long grants there are.
    pub long: usize,
    /// Bytes of the longest frame of the rail below.
    pub longest: usize,
    pub pending: usize,
}

impl Sizes {
    pub const fn of(config: &Config, below: &Attributes) -> Self {
        let peers = config.peers as usize;
        let longest = if below.max_send_size > below.eager_limit { below.max_send_size } else { below.eager_limit };
        let room = Config::room(longest);
        let longest = longest as usize;
        let reserve = (peers > 1) as usize;
        Self {
            peers,
            cards: peers.saturating_mul(config.card_bytes as usize),
            windows: peers.saturating_mul(config.window as usize),
            bits: peers.saturating_mul(3).saturating_mul(config.words()),
            slots: (config.slots as usize).saturating_add(config.control_slots as usize).saturating_add(reserve),
            slot: HEAD_ROOM.saturating_add(room),
            long: if LATER && longest > room { (config.long_slots as usize).saturating_add(reserve) } else { 0 },
            longest,
            pending: (below.frames_kept as usize).saturating_add(config.deliveries as usize),
        }
    }
}

impl Config {
    /// How many bytes a link over `raw` takes from an arena at most.
    pub fn bytes<R: FullRail>(&self, raw: &R) -> usize {
        self.bytes_over(raw.attributes(), raw.card().len())
    }

    /// How many bytes a link takes from an arena at most, over a rail with these attributes and a card of `card` bytes.
    pub const fn bytes_over(&self, below: &Attributes, card: usize) -> usize {
        let config = self.sane(below);
        let sizes = Sizes::of(&config, below);
        let mut costs: &[usize] = &[
            Arena::cost::<u8>(card::PREFIX.saturating_add(card)),
            Paths::cost(sizes.peers),
            Arena::cost::<u8>(sizes.cards),
            Arena::cost::<u32>(sizes.windows).saturating_mul(if MIGRATION { 2 } else { 1 }),
            Arena::cost::<u64>(sizes.bits),
            Pool::<InFlightFrame>::cost(sizes.slots as u32),
            Memory::cost(sizes.slots, sizes.slot),
            Memory::cost(sizes.long, sizes.longest),
            Pool::<PendingDelivery>::cost(sizes.pending as u32),
            if PARTIAL { Arena::cost::<Progress>(sizes.pending) } else { 0 },
            Memory::cost(if PARTIAL { sizes.pending } else { 0 }, TAIL),
            Memory::cost(PARTIAL as usize, sizes.longest),
            if LATER { Queue::cost(sizes.long).saturating_add(Queue::cost(sizes.slots)) } else { 0 },
            if REPEATS { Queue::cost(sizes.pending) } else { 0 },
            PeerQueue::cost(sizes.peers).saturating_mul(4),
            Timers::cost(sizes.peers).saturating_mul(2),
            16, // the block may begin at any address
        ];
        let mut sum = 0usize;
        while let [cost, rest @ ..] = costs {
            sum = sum.saturating_add(*cost);
            costs = rest;
        }
        sum
    }
}
