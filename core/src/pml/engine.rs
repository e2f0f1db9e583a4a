//! The engine's state: all tables of [`Pml`]. What the engine does stands in the files and folders beside this one.

use core::fmt;

use crate::list::{List, OptSlot};
use crate::pml::counters::Counters;
use crate::pml::flow::work_list::WorkList;
use crate::pml::limits::config::Config;
use crate::pml::matching::Matcher;
use crate::pml::peers::link::PeerLink;
use crate::pml::peers::state::PeerState;
use crate::pml::rdma::piece::Rdma;
use crate::pml::requests::posting_order::PostingOrder;
use crate::pml::requests::state::RequestState;
use crate::pml::stall::clock::Stall;
use crate::pml::unexpected::state::Unexpected;
use crate::pool::Pool;
use crate::ptl::Cache;
use crate::rma::Rma;

/// The engine of floor 3. One thread at a time.
pub struct Pml<'m, R> {
    pub(super) rails: R,
    pub(super) peers: &'m mut [PeerState],
    /// A row of `rails.count()` links for each peer: those in use, the lowest latency first, then those set suspended.
    pub(super) links: &'m mut [PeerLink],
    /// Rails that are disabled, a bit for each.
    pub(super) disabled: [u32; 8],
    /// Prepared requests, of the rails that keep such.
    pub(super) caches: &'m mut [Cache<'m>],
    pub(super) requests: Pool<'m, RequestState>,
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
    pub(super) work: WorkList,
    /// Refusals to be sent: first envelope, index plus one.
    pub(super) refused: OptSlot,
    /// Something may be waiting to be sent: there is an active request, a peer to be told or a refusal.
    pub(super) waiting: bool,
    /// Links that are down may have frames that others are to carry.
    pub(super) migrating: bool,
    /// Posted receives in the order in which they are asked for.
    pub(super) posting_order: PostingOrder,
    /// A peer was lost, or `posted` is kept: receives take the long way.
    pub(super) slow_receives: bool,
    /// Number of the next posted receive; the first is 1.
    pub(super) next_posting: u64,
    /// Envelopes that may be owed without anything done about it: for more, credit is sent without waiting.
    pub(super) credit_slack: u16,
    /// Spare envelopes that are taken.
    pub(super) spares_used: u32,
    /// Peers that failed, and that nobody has asked for yet.
    pub(super) unreported_failures: u32,
    /// Probes that found nothing, all told; wraps.
    pub(super) missed_probes: u32,
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
