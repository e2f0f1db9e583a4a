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
    /// As standard. A caller that wants MPI's buffered send copies the message itself, into memory that stays until completion.
    Buffered,
    /// Complete when the receive has matched.
    Synchronous,
    /// Complete when the receive has matched, which must be posted already. Otherwise the send fails with
    /// [`Failure::NotReady`](crate::pml::Failure::NotReady).
    Ready,
    /// Complete when the rails to the peer have drained: the message is with the device, and needs no further progress.
    Complete,
}

/// The handle of an operation in progress, valid until its outcome is taken. A stale or forged one is refused wherever it is
/// used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Request(pub(crate) Handle);

impl Request {
    /// The request as a word, for callers that keep requests in memory of their own (CONTRACTS M11).
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The request of a word that [`to_bits`](Self::to_bits) returned. Any other word is refused wherever it is used.
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
    /// Bytes that are in the receiver's memory (`bytes_delivered`): fewer if the message was truncated. Of a send: the same as
    /// `received`.
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
