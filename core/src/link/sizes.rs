//! How much memory a link takes.

use super::card;
use super::config::Config;
use super::in_flight::{HEAD_ROOM, Kept};
use super::memory::Memory;
use super::path::Path;
use super::pending_delivery::{Coming, Progress, TAIL};
use super::timers::Timers;
use crate::arena::Arena;
use crate::pool::Pool;
use crate::queue::Queue;
use crate::rail::{Attributes, FullRail};

/// How long each table is.
pub(super) struct Sizes {
    pub peers: usize,
    pub cards: usize,
    pub ring: usize,
    pub bits: usize,
    pub slots: usize,
    pub slot: usize,
    pub long: usize,
    pub longest: usize,
    pub coming: usize,
}

impl Sizes {
    pub fn of(config: &Config, raw: &Attributes) -> Self {
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
