//! Messages that probes find.

/// The properties of a message that a probe returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct Envelope {
    /// The sender.
    pub peer: crate::rail::Peer,
    /// Its tag.
    pub tag: u32,
    /// Bytes of the message.
    pub len: u64,
}

/// A message that a matched probe took. No other receive can get it.
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
    /// It was an answer: in the request that is to receive it, so that its envelope beyond all credit is free for others.
    Request(crate::pool::Handle),
}
