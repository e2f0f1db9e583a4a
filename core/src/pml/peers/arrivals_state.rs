//! The counts of the messages of a peer that have arrived.

use zerocopy::FromZeros;

/// The messages of a peer. All numbers wrap.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct Arrivals {
    /// Number of its first message.
    pub first: u32,
    /// Messages that have come as answers, outside of the numbers.
    pub answers: u32,
    /// All messages that had arrived when the peer was lost.
    pub last: u32,
}
