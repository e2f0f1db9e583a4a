//! The peers of a module: their handles, and the state of each.

use zerocopy::FromZeros;

use super::counts::PeerCounts;
use crate::pool::Handle;
use crate::rail::Endpoint;

/// The handle of a peer of a module (`mca_btl_base_endpoint_t`). It is valid until the peer is removed. Methods refuse a stale
/// one, or ignore it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct EndpointId(pub(super) Handle);

crate::btl::word_handle!(EndpointId);

impl EndpointId {
    /// The index of the peer among the module's peers, for tables of the caller. After the peer was removed, another one may get it.
    pub const fn slot(self) -> u32 {
        self.0.slot()
    }
}

/// A process that is added to a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Proc<'c> {
    /// The number that the caller gives to the process. Error callbacks get it.
    pub id: u32,
    /// The card that the process's rail has published.
    pub card: &'c [u8],
}

/// The state of a peer.
#[derive(Clone, Copy, FromZeros, Debug)]
pub(super) struct EndpointState {
    pub rail: Endpoint,
    pub proc: u32,
    /// Sends without priority that wait for room. While there are any, further sends wait behind them.
    pub waiting: u32,
    /// Sends with priority that wait for room. They go before sends without priority.
    pub urgent: u32,
    /// The last pass over the waiting sends in which a send to this peer had to go on waiting. The sends behind it are not
    /// tried in that pass.
    pub full: u32,
    pub lost: bool,
    /// The peer was deleted from the rail, which may have given the endpoint to another peer since.
    pub deleted: bool,
    /// The counts of frames to and from the peer.
    pub counts: PeerCounts,
}

impl EndpointState {
    /// Whether sends wait that have to leave before a new send.
    pub const fn has_earlier(&self, urgent: bool) -> bool {
        self.urgent != 0 || (!urgent && self.waiting != 0)
    }
}
