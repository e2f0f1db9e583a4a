//! The state of an engine: all tables of [`Pml`]. The files and folders beside this one contain the engine's behaviour.

use core::fmt;

use crate::list::{List, OptSlot};
use crate::pml::counters::Counters;
use crate::pml::flow::work_list::WorkList;
use crate::pml::limits::config::Config;
use crate::pml::matching::{HeldTable, Matcher};
use crate::pml::peers::arrivals_state::Arrivals;
use crate::pml::peers::link::{DISABLED_WORDS, PeerLink};
use crate::pml::peers::state::PeerState;
use crate::pml::rdma::piece::Rdma;
use crate::pml::requests::posting_order::PostingOrder;
use crate::pml::requests::state::RequestState;
use crate::pml::stall::clock::StallClock;
use crate::pml::unexpected::refused_messages::RefusedMessages;
use crate::pml::unexpected::state::Unexpected;
use crate::pool::Pool;
use crate::ptl::Cache;
use crate::rma::Rma;

/// The engine of floor 3. It is used by one thread at a time, and may move between threads.
///
/// Memory comes from an [`Arena`](crate::arena::Arena) at set-up; the engine allocates nothing later.
pub struct Pml<'m, R> {
    pub(super) rails: R,
    pub(super) peers: &'m mut [PeerState],
    /// A row of `rails.count()` links for each peer: first the links in use, by latency, the lowest first; then the suspended
    /// ones.
    pub(super) links: &'m mut [PeerLink],
    /// Rails that are disabled, one bit for each.
    pub(super) disabled: [u32; DISABLED_WORDS],
    /// Requests that rails have prepared ([`Cache`]): one cache for each rail that wants one.
    pub(super) caches: &'m mut [Cache<'m>],
    pub(super) requests: Pool<'m, RequestState>,
    pub(super) matcher: Matcher<'m>,
    /// Held-back sends, in the order in which peers may ask for them.
    pub(super) held_table: HeldTable<'m>,
    pub(super) envelopes: Pool<'m, Unexpected>,
    pub(super) units: Pool<'m, ()>,
    /// The memory of the payload units, one after the other. An address, not a reference, since a rail may write to a unit.
    pub(super) unit_memory: *mut u8,
    pub(super) unit_bytes: u32,
    /// Requests that have something to send.
    pub(super) active: List,
    /// The number of the present round through the active requests, never 0.
    pub(super) round: u16,
    /// Whether streaming requests send before held-back sends and control frames in the next round.
    pub(super) streams_first: bool,
    /// Completed requests that are to be announced.
    pub(super) completed: List,
    /// Requests in progress that are freed when they end.
    pub(super) detached: u32,
    /// Peers for which something is to be sent.
    pub(super) work: WorkList,
    /// The first envelope of the list of refusals that are to be sent.
    pub(super) refused: OptSlot,
    /// Tags of the messages that are kept until a receive takes them; all others are refused. All tags, unless
    /// [`refuse_unexpected`](Pml::refuse_unexpected) was called.
    pub(super) kept_tags: core::ops::Range<u32>,
    /// The messages that were refused for that reason.
    pub(super) refused_messages: RefusedMessages,
    /// Messages in ready mode that find no receive are kept.
    pub(super) keeps_ready: bool,
    /// Something may wait to be sent: there is an active request, a peer in the work list, a refusal or a one-sided frame.
    pub(super) waiting: bool,
    /// Links that are down may have frames that other links are to carry.
    pub(super) migrating: bool,
    /// Posted receives in the order in which peers are asked for them.
    pub(super) posting_order: PostingOrder,
    /// A peer was lost, or `posting_order` is kept: receives take the slow path.
    pub(super) slow_receives: bool,
    /// The number of the next posted receive. The first is 1.
    pub(super) next_posting: u64,
    /// Most envelopes that may be owed to a peer without a credit frame.
    pub(super) credit_slack: u16,
    /// Envelopes beyond all credit ([`Config::probes`]) that are in use.
    pub(super) spares_used: u32,
    /// How many times a peer was lost; saturates.
    pub(super) losses: u32,
    /// The number of peers that failed and whose failure was not reported yet.
    pub(super) unreported_failures: u32,
    /// The number of probes that found nothing, of all patterns. It wraps.
    pub(super) missed_probes: u32,
    /// The number of requests that ended, or may have ended, because something was sent. It wraps.
    pub(super) ended: u32,
    /// The stall time-out and its checks.
    pub(super) stall: StallClock,
    pub(super) rma: Rma<'m>,
    pub(super) rdma: Rdma<'m>,
    /// The turn that chooses which of a peer's links carries the next one-sided operations. It wraps.
    pub(super) rma_turn: u32,
    /// The messages of each peer that have arrived. Empty unless they are counted.
    pub(super) arrivals: &'m mut [Arrivals],
    pub(super) counters: Counters,
    pub(super) config: Config,
}

// SAFETY: the only field that is not `Send` by itself is the address of the payload units. The units belong to the engine, as its
// tables do.
unsafe impl<R: Send> Send for Pml<'_, R> {}

impl<R> fmt::Debug for Pml<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pml").field("config", &self.config).field("counters", &self.counters).finish_non_exhaustive()
    }
}
