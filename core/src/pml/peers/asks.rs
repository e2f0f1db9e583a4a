//! Asks for messages that are held back, in both directions: see [`flow`](crate::pml::flow).

use zerocopy::FromZeros;

use crate::list::OptSlot;

/// Our asks to a peer that holds messages back.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct Asks {
    /// Posting number of the receive that we asked for last. No receive up to it needs an ask.
    pub cursor: u64,
    /// Context that a probe of ours looks for.
    pub probe_context: u32,
    /// Tag that a probe of ours looks for.
    pub probe_tag: u32,
    /// The envelope of an answer that is kept for a probe.
    pub kept_answer: OptSlot,
    /// Number of the peer's last notice: the low half of the number on the wire. No notice overtakes 2^15 others.
    pub notice_in: u16,
    /// Probes of ours that found nothing since the last ask for one.
    pub probes: u8,
    /// Asks for probes that found nothing, one after the other, since the peer's last notice. If it is not 0 and no other probe
    /// waits to be asked for, the last of them was for `probe_context` and `probe_tag`.
    pub empty_asks: u8,
}

impl Asks {
    /// Whether enough probes have found nothing for another ask: the more asks found nothing, the more probes it takes.
    #[inline]
    pub const fn may_ask_for_probe(&self) -> bool {
        let empty = if self.empty_asks < 8 { self.empty_asks } else { 7 };
        self.probes >= (1u8 << empty).wrapping_sub(1)
    }
}

/// The ask of a peer that we hold messages back from, and our answer.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct PeerAsk {
    pub context: u32,
    pub tag: u32,
    /// The request that is out as an answer.
    pub answering: OptSlot,
}
