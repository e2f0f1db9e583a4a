//! The peers of a module: their names, and the state of each.

use zerocopy::FromZeros;

use super::counts::PeerCounts;
use crate::pool::Handle;
use crate::rail::Endpoint;

/// Names a peer of a module until the peer is removed. After that the name is stale, and finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct EndpointId(pub(super) Handle);

/// A process that is added to a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proc<'c> {
    /// The caller's number of the process, which error callbacks get.
    pub id: u32,
    /// The card that its rail published.
    pub card: &'c [u8],
}

/// The state of a peer.
#[derive(Clone, Copy, FromZeros, Debug)]
pub(super) struct EndpointState {
    pub rail: Endpoint,
    pub proc: u32,
    /// Sends without priority that wait for room. While there are any, further sends wait behind them.
    pub waiting: u32,
    /// Sends with priority that wait for room. They go before those without.
    pub urgent: u32,
    /// The pass of sending in which the rail was full.
    pub full: u32,
    pub lost: bool,
    /// The frames to and from the peer.
    pub counts: PeerCounts,
}

impl EndpointState {
    /// Whether sends wait that go before a new one.
    pub const fn has_earlier(&self, urgent: bool) -> bool {
        self.urgent != 0 || (!urgent && self.waiting != 0)
    }
}
