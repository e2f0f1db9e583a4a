//! Set-up and end of an engine, and what can be read from it.

use crate::arena::Arena;
use crate::list::{List, OptSlot};
use crate::pml::counters::Counters;
use crate::pml::engine::Pml;
use crate::pml::flow::work_list::WorkList;
use crate::pml::limits::config::Config;
use crate::pml::limits::errors::SetUpError;
use crate::pml::limits::params::PARAMS;
use crate::pml::matching::{HeldTable, Matcher};
use crate::pml::offload::{self, device::Offload};
use crate::pml::peers::link::DISABLED_WORDS;
use crate::pml::peers::state::PeerStatus;
use crate::pml::rails::Rails;
use crate::pml::rdma::{self, piece::Rdma};
use crate::pml::requests::posting_order::PostingOrder;
use crate::pml::stall::clock::StallClock;
use crate::pml::unexpected::refused_messages::RefusedMessages;
use crate::pool::Pool;
use crate::ptl::Cache;
use crate::rail::{Peer, Rail};
use crate::rma::Rma;

impl<'m, R: Rails> Pml<'m, R> {
    /// Makes an engine over `rails`, with tables cut from `arena`.
    ///
    /// # Errors
    /// [`SetUpError`] if the arena has less than [`Config::bytes`] left, or if a limit is too small ([`Config::check`]).
    pub fn new(config: Config, arena: &mut Arena<'m>, rails: R) -> Result<Self, SetUpError> {
        config.check()?;
        let config = config.compiled();
        let words = (config.unit_bytes as usize).div_ceil(8);
        let links = (config.peers as usize).saturating_mul(rails.count());
        // Cookies have 30 bits for a slot (see `requests::cookie`), and links hold the slot plus one.
        let most = 1 << 30;
        let (requests, envelopes) = (config.requests.min(most), config.envelopes().min(most));
        let no_cache = (0, 0);
        let wanting = || {
            (0..rails.count()).filter_map(|index| {
                let attributes = rails.rail(index)?.attributes();
                (attributes.cache_size != 0).then_some((index, (attributes.cache_size, attributes.cache_bytes)))
            })
        };
        Ok(Self {
            peers: arena.table(config.peers as usize)?,
            links: arena.table(links)?,
            disabled: [0; DISABLED_WORDS],
            caches: match rdma::ENABLED {
                true => arena.each(wanting().count(), |arena, index| {
                    let (rail, attributes) = wanting().nth(index).unwrap_or((0, no_cache));
                    Cache::new(arena, rail, attributes.0, attributes.1)
                })?,
                false => &mut [],
            },
            requests: Pool::new(arena, requests)?,
            matcher: Matcher::new(arena, requests, envelopes, config.seed)?,
            held_table: HeldTable::new(arena, requests, config.seed)?,
            envelopes: Pool::new(arena, envelopes)?,
            units: Pool::new(arena, config.units)?,
            unit_memory: arena.table::<u64>(words.saturating_mul(config.units as usize))?.as_mut_ptr().cast(),
            unit_bytes: (words as u32).saturating_mul(8),
            active: List::default(),
            round: 1,
            streams_first: false,
            completed: List::default(),
            detached: 0,
            work: WorkList::default(),
            refused: OptSlot::NONE,
            kept_tags: 0..u32::MAX,
            keeps_ready: false,
            refused_messages: RefusedMessages { count: 0, bytes: 0, largest: 0, peer: Peer(0), tag: 0, context: 0 },
            waiting: false,
            migrating: false,
            posting_order: PostingOrder::default(),
            slow_receives: false,
            next_posting: 1,
            credit_slack: match config.quota() {
                (envelopes, 0) => envelopes,
                (envelopes, units) => envelopes.min(units),
            }
            .div_ceil(2)
            .saturating_sub(1),
            spares_used: 0,
            losses: 0,
            unreported_failures: 0,
            missed_probes: 0,
            ended: 0,
            stall: StallClock::OFF,
            rma: Rma::new(config.rma, arena, config.peers)?,
            rdma: Rdma::new(config.rdma, arena)?,
            rma_turn: 0,
            arrivals: &mut [],
            counters: Counters::default(),
            config,
            rails,
        })
    }

    /// Ends the engine. It forgets all peers, so that no rail accesses memory of their requests any more, releases the requests
    /// that rails have prepared, and returns the rails, which the caller closes.
    pub fn finalize(mut self) -> R {
        for peer in 0..self.peers.len() as u32 {
            if self.peers.get(peer as usize).is_some_and(|state| state.status == PeerStatus::Up) {
                self.del_peer(Peer(peer));
            }
        }
        self.drain_caches();
        self.forget_all_memory();
        self.rails
    }

    /// The parameters of this engine. Its peers pass them to their [`add_peer`](Self::add_peer), so the caller publishes them
    /// beside the cards of the rails.
    pub fn params(&self) -> [u8; PARAMS] {
        self.config.params()
    }

    /// The rails.
    pub fn rails(&self) -> &R {
        &self.rails
    }

    /// The rails, for calling functions that are not in the trait `Rail`. The caller must not take frames from them.
    pub fn rails_mut(&mut self) -> &mut R {
        &mut self.rails
    }

    /// The device that matches the messages of some communicators, if there is one.
    #[inline]
    pub fn offload(&mut self) -> Option<&mut dyn Offload> {
        if offload::ENABLED { self.rails.offload() } else { None }
    }

    /// Counts of events since set-up.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The matcher, for its counters.
    pub fn matcher(&self) -> &Matcher<'m> {
        &self.matcher
    }

    /// The number of elements in use of three pools: requests, envelopes, payload units.
    pub fn used(&self) -> [u32; 3] {
        [self.requests.used(), self.envelopes.used(), self.units.used()]
    }
}
