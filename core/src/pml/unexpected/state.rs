//! The state of a message that arrived before its receive, or before earlier messages.

use zerocopy::FromZeros;

use crate::list::OptSlot;
use crate::rail::LATER;

/// In `Unexpected::flags`: an answer to an ask for one tag. The peer may hold back earlier messages with other tags, so a receive
/// of any tag must not take this one.
pub(crate) const NARROW: u8 = 0x80;

/// In `Unexpected::flags`: a probe found the message.
pub(crate) const SEEN: u8 = 0x40;

/// The stage of an envelope.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromZeros)]
#[repr(u8)]
pub(crate) enum EnvelopeStage {
    /// The message waits for earlier ones.
    OutOfOrder,
    /// The message is in the matcher.
    Queued,
    /// A matched probe took the message.
    Taken,
    /// A matched probe took the message; then its sender was lost before the whole message had arrived.
    Broken,
    /// The message matched while its payload was arriving.
    Claimed,
    /// A refusal is to be sent.
    Refused,
}

/// A message that arrived before its receive, or before earlier messages.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct Unexpected {
    pub stage: EnvelopeStage,
    /// The payload is still arriving.
    pub filling: bool,
    /// The sender waits for an ack, a finish or a reject.
    pub rendezvous: bool,
    /// `wire::FLAG_*` of the header, [`NARROW`] and [`SEEN`].
    pub flags: u8,
    pub peer: u32,
    pub context: u32,
    pub tag: u32,
    /// The payload unit, if there is payload.
    pub unit: OptSlot,
    /// Bytes of payload in the unit.
    pub body: u32,
    /// `OutOfOrder` or `Refused`: the next envelope in the list. `Claimed`: the request's slot.
    pub next: OptSlot,
    /// The message's number, cut to 32 bits. `Refused`: the reason. A kept answer: [`Pml::missed_probes`](crate::pml::Pml) when
    /// it came.
    pub sequence: u32,
    pub total: u64,
    pub sender: u64,
}

impl Unexpected {
    /// Whether the payload is still arriving.
    pub const fn is_filling(&self) -> bool {
        LATER && self.filling
    }
}
