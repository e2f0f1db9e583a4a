//! Messages that probes find.

/// The properties of a message that a probe returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Envelope {
    /// The sender.
    pub peer: crate::rail::Peer,
    /// The tag of the message.
    pub tag: u32,
    /// The length of the message in bytes.
    pub len: u64,
}

/// A message that a matched probe took: `MPI_Message` of MPI. Only [`imrecv`](crate::pml::Pml::imrecv) receives it.
#[derive(PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[must_use = "a matched message that is never received keeps its envelope, or its request"]
pub struct Message(pub(crate) MessageSource);

/// Where a message that a matched probe took is kept.
#[derive(PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(crate) enum MessageSource {
    /// In the envelope for which its sender had credit.
    Envelope(crate::pool::Handle),
    /// In the request that is to receive it. The message was an answer, and its envelope beyond all credit is free for others.
    Request(crate::pool::Handle),
}
