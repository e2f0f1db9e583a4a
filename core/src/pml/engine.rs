//! The engine: its tables, and how they are set up.

use core::fmt;

use zerocopy::FromZeros;

use super::counters::Counters;
use super::failover::is_disabled;
use super::matching::Matcher;
use super::peer::{LINKED, Link, OFF, PeerState, Standing};
use super::pools::SetUpError;
use super::posted::Posted;
use super::rdma::{self, Rdma};
use super::request::{List, State};
use super::stall::Stall;
use super::unexpected::Unexpected;
use crate::arena::Arena;
use crate::pool::Pool;
use crate::ptl::Cache;
use crate::rail::{Attributes, Capabilities, FullRail, Peer, Rail, Unreachable};
use crate::rma::{self, Rma};
use crate::wire;

/// Rails by index. Implemented for arrays and slices; an owner of another kind implements it in a few lines.
pub trait Rails {
    /// What the rails are. One type: an enum where they differ.
    type Rail: FullRail;

    /// How many there are. Constant.
    fn count(&self) -> usize;

    /// One of them.
    fn rail(&self, index: usize) -> Option<&Self::Rail>;

    /// One of them.
    fn rail_mut(&mut self, index: usize) -> Option<&mut Self::Rail>;
}

impl<R: FullRail, const N: usize> Rails for [R; N] {
    type Rail = R;

    #[inline]
    fn count(&self) -> usize {
        N
    }

    #[inline]
    fn rail(&self, index: usize) -> Option<&R> {
        self.get(index)
    }

    #[inline]
    fn rail_mut(&mut self, index: usize) -> Option<&mut R> {
        self.get_mut(index)
    }
}

impl<R: FullRail> Rails for &mut [R] {
    type Rail = R;

    #[inline]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn rail(&self, index: usize) -> Option<&R> {
        self.get(index)
    }

    #[inline]
    fn rail_mut(&mut self, index: usize) -> Option<&mut R> {
        self.get_mut(index)
    }
}

/// Limits of an engine, chosen at set-up; what they cost in memory is [`Config::bytes`].
///
/// Unexpected memory is bounded by `unexpected` envelopes and `units` payload units of `unit_bytes` bytes. Each of
/// `peers` peers has an equal share of both as credit: a message takes an envelope of its receiver from when it is
/// sent until it is matched, an eager one with a payload also a unit. A peer without credit holds its messages back,
/// and is asked for the one that a receive needs. How few of each are enough is told by [`Config::check`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Config {
    /// Peers at most, this process included where it sends to itself.
    pub peers: u32,
    /// Sends and receives under way at most; completed ones count until their outcome is taken, and so do messages held
    /// back that a matched probe took.
    pub requests: u32,
    /// Envelopes for messages that arrive before their receive.
    pub unexpected: u32,
    /// Payload units for eager messages that arrive before their receive.
    pub units: u32,
    /// Bytes of a payload unit: no longer message goes eagerly to this engine.
    pub unit_bytes: u32,
    /// Envelopes beyond all credit, at least 1: for messages that are held back at their sender, asked for by a probe, and
    /// not yet received. With few of them probes for several things in turn wait for each other; none waits for ever.
    /// What [`improbe`](Pml::improbe) takes goes on to a request and leaves its envelope to others, so `requests` is the
    /// bound of messages that are taken and not received.
    pub probes: u32,
    /// Key of the matcher's hash: unknown to peers, so that they cannot choose tags that collide.
    pub seed: u64,
    /// Number of the first message to each peer. Peers learn it from [`Pml::params`]; tests start near the wrap.
    pub first_sequence: u64,
    /// One-sided operations.
    pub rma: rma::Config,
    /// Messages that devices move.
    pub rdma: rdma::Config,
}

impl Config {
    /// The smallest useful engine: 4 peers, 16 requests, 32 unexpected messages of 64 bytes.
    pub const SMALLEST: Self = Self {
        peers: 4,
        requests: 16,
        unexpected: 32,
        units: 32,
        unit_bytes: 64,
        probes: 1,
        seed: 0,
        first_sequence: 0,
        rma: rma::Config::OFF,
        rdma: rdma::Config::OFF,
    };

    const fn envelopes(&self) -> u32 {
        self.unexpected.saturating_add(self.probes)
    }

    /// Bytes that an engine over rails with these attributes takes from an arena at most, the requests that they want
    /// prepared ([`Cache`]) included.
    pub const fn bytes(&self, rails: &[&Attributes]) -> usize {
        let links = (self.peers as usize).saturating_mul(rails.len());
        let mut caches = 0usize;
        let mut left = rails;
        while let [rail, rest @ ..] = left {
            if rail.cache_size != 0 {
                caches = caches.saturating_add(Cache::cost(rail.cache_size, rail.cache_bytes));
            }
            left = rest;
        }
        let words = (self.unit_bytes as usize).div_ceil(8);
        Arena::cost::<PeerState>(self.peers as usize)
            .saturating_add(Arena::cost::<Link>(links))
            .saturating_add(caches)
            .saturating_add(Pool::<State>::cost(self.requests))
            .saturating_add(Pool::<Unexpected>::cost(self.envelopes()))
            .saturating_add(Pool::<()>::cost(self.units))
            .saturating_add(Arena::cost::<u64>(words.saturating_mul(self.units as usize)))
            .saturating_add(Matcher::cost(self.requests, self.envelopes()))
            .saturating_add(self.rma.bytes(self.peers))
            .saturating_add(self.rdma.bytes())
    }

    /// What peers of an engine with these limits need to know of it: see [`Pml::params`]. So it can be published before the
    /// engine is there, and rails that no peer is reached by need never be given to it.
    pub fn params(&self) -> [u8; PARAMS] {
        let (envelopes, units) = self.quota();
        Params { envelopes, units, unit_bytes: self.unit_bytes, first_sequence: self.first_sequence }.encode()
    }

    /// One peer's share: envelopes and units.
    pub(super) const fn quota(&self) -> (u16, u16) {
        if self.peers == 0 {
            return (0, 0);
        }
        let (envelopes, units) = (self.unexpected / self.peers, self.units / self.peers);
        (
            if envelopes > u16::MAX as u32 { u16::MAX } else { envelopes as u16 },
            if units > u16::MAX as u32 { u16::MAX } else { units as u16 },
        )
    }
}

/// Bytes of [`Pml::params`].
pub const PARAMS: usize = 20;

/// What an engine tells its peers about itself, beside the cards of its rails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Params {
    envelopes: u16,
    units: u16,
    unit_bytes: u32,
    first_sequence: u64,
}

impl Params {
    fn encode(&self) -> [u8; PARAMS] {
        let mut bytes = [0; PARAMS];
        let fields = [b'T', b'W', wire::VERSION, 0]
            .into_iter()
            .chain(self.envelopes.to_le_bytes())
            .chain(self.units.to_le_bytes())
            .chain(self.unit_bytes.to_le_bytes())
            .chain(self.first_sequence.to_le_bytes());
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<Self, Unreachable> {
        let Ok([b'T', b'W', version, _, e0, e1, u0, u1, b0, b1, b2, b3, s0, s1, s2, s3, s4, s5, s6, s7]) =
            <[u8; PARAMS]>::try_from(bytes)
        else {
            return Err(Unreachable::BadCard);
        };
        if version != wire::VERSION {
            return Err(Unreachable::Version);
        }
        Ok(Self {
            envelopes: u16::from_le_bytes([e0, e1]),
            units: u16::from_le_bytes([u0, u1]),
            unit_bytes: u32::from_le_bytes([b0, b1, b2, b3]),
            first_sequence: u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
        })
    }
}

/// The engine of floor 3. One thread at a time.
pub struct Pml<'m, R> {
    pub(super) rails: R,
    pub(super) peers: &'m mut [PeerState],
    /// A row of `rails.count()` links for each peer: those in use, the lowest latency first, then those set aside.
    pub(super) links: &'m mut [Link],
    /// Rails that are disabled, a bit for each.
    pub(super) disabled: [u32; 8],
    /// Prepared requests, of the rails that keep such.
    pub(super) caches: &'m mut [Cache<'m>],
    pub(super) requests: Pool<'m, State>,
    pub(super) matcher: Matcher<'m>,
    pub(super) envelopes: Pool<'m, Unexpected>,
    pub(super) units: Pool<'m, ()>,
    /// Payload units, one behind the other; as an address, since a rail may be writing to one.
    pub(super) unit_memory: *mut u8,
    pub(super) unit_bytes: u32,
    /// Requests that have something to send.
    pub(super) active: List,
    /// Number of this round through them, never 0.
    pub(super) round: u16,
    /// Whose turn it is to have room first: the requests that stream, or what is held back and to be told.
    pub(super) streams_first: bool,
    /// Completed requests to be announced.
    pub(super) completed: List,
    /// Peers that have something to be told: first and last, index plus one.
    pub(super) work_head: u32,
    pub(super) work_tail: u32,
    /// Refusals to be sent: first envelope, index plus one.
    pub(super) refused: u32,
    /// Something may be waiting to be sent: there is an active request, a peer to be told or a refusal.
    pub(super) waiting: bool,
    /// Links that are down may have frames that others are to carry.
    pub(super) orphans: bool,
    /// Posted receives in the order in which they are asked for.
    pub(super) posted: Posted,
    /// A peer was lost, or `posted` is kept: receives take the long way.
    pub(super) unusual: bool,
    /// Number of the next posted receive; the first is 1.
    pub(super) posting: u64,
    /// Envelopes that may be owed without anything done about it: for more, credit is sent without waiting.
    pub(super) credit_slack: u16,
    /// Spare envelopes that are taken.
    pub(super) spares_used: u32,
    /// Peers that failed, and that nobody has asked for yet.
    pub(super) failed_news: u32,
    /// Probes that found nothing, all told; wraps.
    pub(super) vain_probes: u32,
    /// Requests that ended when something had been sent; wraps.
    pub(super) ended: u32,
    /// How long a peer may do nothing.
    pub(super) stall: Stall,
    pub(super) rma: Rma<'m>,
    pub(super) rdma: Rdma<'m>,
    /// Whose turn it is among a peer's links to carry one-sided operations.
    pub(super) rma_turn: u32,
    pub(super) counters: Counters,
    pub(super) config: Config,
}

// SAFETY: the only field that is not `Send` by itself is the address of the payload units, which belong to the engine
// like its tables.
unsafe impl<R: Send> Send for Pml<'_, R> {}

impl<R> fmt::Debug for Pml<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pml").field("config", &self.config).field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl<'m, R: Rails> Pml<'m, R> {
    /// An engine over `rails`, with tables cut from `arena`.
    ///
    /// # Errors
    /// [`SetUpError`] where the arena has less than [`Config::bytes`] left, or where a limit is too small
    /// ([`Config::check`]).
    pub fn new(config: Config, arena: &mut Arena<'m>, rails: R) -> Result<Self, SetUpError> {
        config.check()?;
        let words = (config.unit_bytes as usize).div_ceil(8);
        let links = (config.peers as usize).saturating_mul(rails.count());
        // Slots are cookies of 30 bits (see `progress`), and links are index plus one.
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
            disabled: [0; 8],
            caches: arena.each(wanting().count(), |arena, index| {
                let (rail, attributes) = wanting().nth(index).unwrap_or((0, no_cache));
                Cache::new(arena, rail, attributes.0, attributes.1)
            })?,
            requests: Pool::new(arena, requests)?,
            matcher: Matcher::new(arena, requests, envelopes, config.seed)?,
            envelopes: Pool::new(arena, envelopes)?,
            units: Pool::new(arena, config.units)?,
            unit_memory: arena.table::<u64>(words.saturating_mul(config.units as usize))?.as_mut_ptr().cast(),
            unit_bytes: (words as u32).saturating_mul(8),
            active: List::default(),
            round: 1,
            streams_first: false,
            completed: List::default(),
            work_head: 0,
            work_tail: 0,
            refused: 0,
            waiting: false,
            orphans: false,
            posted: Posted::default(),
            unusual: false,
            posting: 1,
            credit_slack: match config.quota() {
                (envelopes, 0) => envelopes,
                (envelopes, units) => envelopes.min(units),
            }
            .div_ceil(2)
            .saturating_sub(1),
            spares_used: 0,
            failed_news: 0,
            vain_probes: 0,
            ended: 0,
            stall: Stall::OFF,
            rma: Rma::new(config.rma, arena, config.peers)?,
            rdma: Rdma::new(config.rdma, arena)?,
            rma_turn: 0,
            counters: Counters::default(),
            config,
            rails,
        })
    }

    /// What peers need to know of this engine, to be published beside the cards of the rails; for their
    /// [`add_peer`](Self::add_peer).
    pub fn params(&self) -> [u8; PARAMS] {
        self.config.params()
    }

    /// Makes a peer known: `params` as its engine gave them, and a way to each of its rails. `reach(i, rail)` adds the
    /// peer to rail `i`, or says why not; what it decides is the caller's affair (see [`crate::btl`], selection).
    ///
    /// Rails of the lowest latency share the first fragments, all share the rest by bandwidth. Where all can fail over, any
    /// of them may go down and come back: the peer is lost with the last. Without that it is lost with the first.
    ///
    /// A peer that was lost begins anew: what it had sent before, and nobody received, is dropped.
    ///
    /// # Errors
    /// [`Unreachable`] where the peer is already known or out of range (`Full`), where its parameters cannot be
    /// understood, and, with the reason of the last rail, where no rail reaches it. Nothing is kept then.
    pub fn add_peer(
        &mut self,
        peer: Peer,
        params: &[u8],
        mut reach: impl FnMut(usize, &mut R::Rail) -> Result<crate::rail::Endpoint, Unreachable>,
    ) -> Result<(), Unreachable> {
        let params = Params::decode(params)?;
        let count = self.rails.count();
        let state = self.peers.get_mut(peer.0 as usize).ok_or(Unreachable::Full)?;
        if state.standing == Standing::Up {
            return Err(Unreachable::Full);
        }
        let start = (peer.0 as usize).saturating_mul(count);
        let row = self.links.get_mut(start..start.saturating_add(count)).ok_or(Unreachable::Full)?;
        row.fill(Link::new_zeroed());
        let (mut links, mut why) = (0usize, Unreachable::NoCard);
        let (mut eager, mut linked) = (u32::MAX, true);
        for index in 0..count.min(u8::MAX as usize) {
            let Some(rail) = self.rails.rail_mut(index) else { continue };
            match reach(index, rail) {
                Ok(endpoint) => {
                    let attributes = rail.attributes();
                    eager = eager.min(attributes.eager_limit);
                    linked &= attributes.capabilities.contains(Capabilities::FAILOVER_SUPPORT);
                    let link = Link {
                        endpoint: endpoint.0,
                        rail: index as u8,
                        aside: if is_disabled(&self.disabled, index) { OFF } else { 0 },
                        busy_in: 0,
                        bandwidth: attributes.bandwidth.max(1),
                        latency: attributes.latency,
                        share: 0,
                    };
                    if let Some(place) = row.get_mut(links) {
                        *place = link;
                        links = links.saturating_add(1);
                    }
                }
                Err(reason) => why = reason,
            }
        }
        if links == 0 {
            return Err(why);
        }
        let header = size_of::<wire::Match>() as u32;
        if state.standing == Standing::Lost {
            self.drop_peer(peer.0, true); // or what is left of its messages would take of its credit
        }
        let state = self.peers.get_mut(peer.0 as usize).ok_or(Unreachable::Full)?;
        // Begun anew also where the peer was lost before; only its place in the work list stays.
        *state = PeerState {
            standing: Standing::Up,
            eager_body: eager.saturating_sub(header).min(params.unit_bytes),
            orderly: true,
            quota_envelopes: params.envelopes,
            quota_units: params.units,
            next_out: self.config.first_sequence as u32,
            next_in: params.first_sequence as u32,
            seen_in: params.first_sequence as u8,
            ..state.afresh()
        }
        .with_credit();
        if linked {
            state.set(LINKED);
        }
        self.arrange(peer.0);
        debug!("peer {}: {} links, credit {} envelopes", peer.0, links, params.envelopes);
        Ok(())
    }

    /// Ends the engine: forgets all peers, so that no rail touches any memory any more, undoes what rails have prepared, and
    /// gives the rails back to be closed.
    pub fn finalize(mut self) -> R {
        for peer in 0..self.peers.len() as u32 {
            if self.peers.get(peer as usize).is_some_and(|state| state.standing == Standing::Up) {
                self.del_peer(Peer(peer));
            }
        }
        self.drain_caches();
        self.forget_all_memory();
        self.rails
    }

    /// The rails.
    pub fn rails(&self) -> &R {
        &self.rails
    }

    /// The rails, for what they offer beside the trait. Frames must not be taken from them.
    pub fn rails_mut(&mut self) -> &mut R {
        &mut self.rails
    }

    /// Counts of what happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Counts of the matcher's steps.
    pub fn matcher(&self) -> &Matcher<'m> {
        &self.matcher
    }

    /// What is taken of the pools now: requests, envelopes, units.
    pub fn used(&self) -> [u32; 3] {
        [self.requests.used(), self.envelopes.used(), self.units.used()]
    }

    /// The `index`-th link of a peer.
    #[inline]
    pub(super) fn link(&self, peer: u32, index: usize) -> Option<&Link> {
        self.links.get((peer as usize).wrapping_mul(self.rails.count()).wrapping_add(index))
    }
}
