//! The rings between this rank and one peer, and how they are numbered.

use super::incoming::Incoming;
use super::outgoing::Outgoing;

/// Class of the rings for short frames; class 1 is for long messages.
pub const EAGER: usize = 0;

/// The two rings of one class between this rank and a peer. Those of class `class` and endpoint `e` have number `2 * e + class`.
#[derive(Debug)]
pub struct RingPair {
    pub incoming: Incoming,
    pub outgoing: Outgoing,
}

impl RingPair {
    /// No rings yet.
    pub fn none() -> Self {
        Self { incoming: Incoming::none(), outgoing: Outgoing::none() }
    }
}
