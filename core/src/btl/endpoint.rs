//! Peers, as a module names them.

use zerocopy::FromZeros;

use super::counts::Counts;
use crate::pool::Handle;
use crate::rail::Endpoint;

/// A peer, as a module names it until it is removed. A name that is used later finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct EndpointId(pub(super) Handle);

/// A process to be added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proc<'c> {
    /// The caller's name for it, told in error callbacks.
    pub id: u32,
    /// What its rail published.
    pub card: &'c [u8],
}

/// What a module keeps for a peer.
#[derive(Clone, Copy, FromZeros, Debug)]
pub(super) struct Reach {
    pub rail: Endpoint,
    pub proc: u32,
    /// Sends that wait for room; while there are any, further ones go behind them.
    pub waiting: u32,
    /// Those with priority, which go before these.
    pub urgent: u32,
    /// The pass in which the rail was found full.
    pub full: u32,
    pub lost: bool,
    /// What has left, and what has arrived.
    pub counts: Counts,
}

impl Reach {
    /// Whether something waits that goes before another send.
    pub const fn has_before(&self, urgent: bool) -> bool {
        self.urgent != 0 || (!urgent && self.waiting != 0)
    }
}
