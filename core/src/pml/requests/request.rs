//! Requests as callers see them.

use crate::pool::Handle;
use crate::rail::Peer;

/// How a send relates to its receive (MPI 4.1, section 3.4, and the MTL's COMPLETE).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Mode {
    /// Complete when the memory may be reused; a short message may have been copied.
    #[default]
    Standard,
    /// As standard. Who needs the copy of a buffered send gives the engine memory that stays until completion.
    Buffered,
    /// Complete when the receive has matched.
    Synchronous,
    /// A receive is posted already; without one the send fails with [`Failure::NotReady`](crate::pml::Failure::NotReady).
    Ready,
    /// Complete when the message is with the device, and not before: nothing is left to later progress.
    Complete,
}

/// Names an operation under way, until its outcome is taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Request(pub(crate) Handle);

impl Request {
    /// As a word, for callers that keep requests in memory of their own (CONTRACTS M11).
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The request of a word; one that was never given out is refused wherever it is used.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(Handle::from_bits(bits))
    }
}

/// What became of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Status {
    /// The other side.
    pub peer: Peer,
    /// The message's tag.
    pub tag: u32,
    /// Bytes of the message as it was sent (`bytes_received` of the contract).
    pub received: u64,
    /// Bytes that are in the receiver's memory (`bytes_delivered`): fewer where the message was truncated.
    pub delivered: u64,
}

/// What became of a send that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use]
pub enum Sending {
    /// Over: the memory may be reused. No request was taken.
    Complete,
    /// Under way: the memory must stay as it is until the request's outcome is taken.
    Pending(Request),
}
