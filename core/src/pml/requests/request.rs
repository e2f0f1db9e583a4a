//! Requests as callers see them.

use crate::pool::Handle;
use crate::rail::Peer;

/// When a send is complete (MPI 4.1, section 3.4, and the MTL's COMPLETE).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Mode {
    /// Complete when the memory may be reused. A short message may have been copied.
    #[default]
    Standard,
    /// As standard. A caller that needs the copy of a buffered send gives the engine memory that stays until completion.
    Buffered,
    /// Complete when the receive has matched.
    Synchronous,
    /// A receive is posted already. Without one the send fails with [`Failure::NotReady`](crate::pml::Failure::NotReady).
    Ready,
    /// Complete when the device has the message, and not before: nothing is left for later progress.
    Complete,
}

/// Names an operation in progress, until its outcome is taken. A stale or forged one is refused wherever it is used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Request(pub(crate) Handle);

impl Request {
    /// The request as a word, for callers that keep requests in memory of their own (CONTRACTS M11).
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The request of a word. A word that was never given out is refused wherever it is used.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(Handle::from_bits(bits))
    }
}

/// The outcome of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Status {
    /// The other side.
    pub peer: Peer,
    /// The message's tag.
    pub tag: u32,
    /// Bytes of the message as it was sent (`bytes_received` of the contract).
    pub received: u64,
    /// Bytes that are in the receiver's memory (`bytes_delivered`): fewer if the message was truncated.
    pub delivered: u64,
}

/// The state of a send that was accepted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use]
pub enum Sending {
    /// The send is over: the memory may be reused. It took no request.
    Complete,
    /// The send is in progress: the memory must stay as it is until the request's outcome is taken.
    Pending(Request),
}
