//! Peers, as a module names them.

use zerocopy::FromZeros;

use super::rail::Endpoint;
use crate::pool::Handle;

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
    /// The pass in which the rail was found full.
    pub full: u32,
    pub lost: bool,
}
