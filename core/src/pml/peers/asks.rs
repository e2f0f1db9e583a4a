//! The state of asks for messages that are held back, in both directions: see [`flow`](crate::pml::flow).

use zerocopy::FromZeros;

use crate::list::OptSlot;

/// The state of our asks to a peer that holds messages back.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct Asks {
    /// Posting number of the receive that we asked for last. No receive up to it needs an ask.
    pub cursor: u64,
    /// Context of the probe to ask for, or that was asked for last.
    pub probe_context: u32,
    /// Tag of that probe.
    pub probe_tag: u32,
    /// The envelope of an answer that is kept for a probe.
    pub kept_answer: OptSlot,
    /// Number of the peer's last notice: the low half of the number on the wire. No notice overtakes 2^15 others.
    pub notice_in: u16,
    /// Probes of ours that found nothing since the last ask for one.
    pub probes: u8,
    /// How many asks for probes in a row have found nothing since the peer's last notice. If it is not 0 and no other probe waits
    /// to be asked for, the last of these asks was for `probe_context` and `probe_tag`.
    pub empty_asks: u8,
}

impl Asks {
    /// Whether enough probes have found nothing to ask once more. Each ask that finds nothing doubles the number that it takes.
    #[inline]
    pub const fn may_ask_for_probe(&self) -> bool {
        let empty = if self.empty_asks < 8 { self.empty_asks } else { 7 };
        self.probes >= (1u8 << empty).wrapping_sub(1)
    }
}

/// The ask of a peer from which we hold messages back, and our answer.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct PeerAsk {
    pub context: u32,
    pub tag: u32,
    /// The send that left as an answer and is not settled.
    pub answering: OptSlot,
}
