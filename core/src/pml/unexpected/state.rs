//! Messages that arrived before their receive, or before the messages that go first.

use zerocopy::FromZeros;

use crate::list::OptSlot;

/// In `Unexpected::flags`: an answer to an ask for one tag. Messages with other tags may go before it, so it is nothing
/// for a receive of any tag.
pub(crate) const NARROW: u8 = 0x80;

/// In `Unexpected::flags`: a probe found it.
pub(crate) const SEEN: u8 = 0x40;

/// Where an envelope stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromZeros)]
#[repr(u8)]
pub(crate) enum EnvelopeStage {
    /// Waits for the messages that go before it.
    OutOfOrder,
    /// In the matcher.
    Queued,
    /// Taken by a matched probe.
    Taken,
    /// Taken by a matched probe, and then its sender was lost with the rest.
    Broken,
    /// Matched while its payload was still coming in.
    Claimed,
    /// A refusal is to be sent.
    Refused,
}

/// One such message.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct Unexpected {
    pub stage: EnvelopeStage,
    /// The payload is still coming in.
    pub filling: bool,
    /// The sender waits for an answer.
    pub rendezvous: bool,
    /// `wire::FLAG_*` of the header.
    pub flags: u8,
    pub peer: u32,
    pub context: u32,
    pub tag: u32,
    /// Slot of the payload unit plus one, 0 without payload.
    pub unit: OptSlot,
    /// Bytes of payload in the unit.
    pub body: u32,
    /// OutOfOrder or refused: the next envelope, index plus one. Claimed: the request's slot.
    pub next: OptSlot,
    /// The message's number, cut to 32 bits. Refused: the reason. An answer: how many probes were in vain when it came.
    pub sequence: u32,
    pub total: u64,
    pub sender: u64,
}
