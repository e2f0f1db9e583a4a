//! What is kept for each peer: numbers, credit, held-back sends, and what is to be told to it.

use zerocopy::FromZeros;

use super::request::{List, State};
use crate::pool::Pool;
use crate::wire::Common;

/// Whether a peer can be sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromZeros)]
#[repr(u8)]
pub(crate) enum Standing {
    Unknown,
    Up,
    Lost,
}

/// The peer is in the work list.
pub(crate) const QUEUED: u16 = 0x0001;
/// The peer holds messages back from us.
pub(crate) const HOLDING: u16 = 0x0002;
/// We asked the peer, and wait for an answer or for nothing.
pub(crate) const ASKING: u16 = 0x0004;
/// What we asked was for a probe.
pub(crate) const ASKING_PROBE: u16 = 0x0008;
/// A probe found nothing: ask for it.
pub(crate) const PROBE: u16 = 0x0010;
/// The peer asked, and is to be answered.
pub(crate) const ASKED: u16 = 0x0020;
/// What the peer asked is for a probe.
pub(crate) const ASKED_PROBE: u16 = 0x0040;
/// We hold messages back, and have told so since the last was added.
pub(crate) const ANNOUNCED: u16 = 0x0080;
/// Credit is to be sent without waiting for a frame that it could ride on.
pub(crate) const CREDIT_DUE: u16 = 0x0100;
/// `reject` is to be sent.
pub(crate) const REJECT_DUE: u16 = 0x0200;
/// What we asked was for any tag.
pub(crate) const ASKING_WIDE: u16 = 0x0400;
/// An ask found nothing since the last notice: the next message that is held back brings another.
pub(crate) const VAIN: u16 = 0x0800;

/// A message to the peer is lent, and the peer has yet to say that it is done with it.
pub(crate) const LENDING: u16 = 0x1000;

#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct PeerState {
    pub standing: Standing,
    /// Links with the lowest latency: these come first in the peer's row of links.
    pub firsts: u8,
    /// Whose turn it is among them.
    pub turn: u8,
    /// Links in all.
    pub links: u8,
    /// Bytes of the longest body that goes eagerly.
    pub eager_body: u32,
    /// Credit: envelopes and payload units that the peer has room for.
    pub envelopes: u16,
    pub units: u16,
    /// Credit to be given back.
    pub owed_envelopes: u16,
    pub owed_units: u16,
    pub flags: u16,
    /// The peer's whole credit: more than this never comes back.
    pub quota_envelopes: u16,
    pub quota_units: u16,
    /// Probes of ours that found nothing since one was asked for.
    pub probes: u16,
    /// Number of the next frame to the peer.
    pub frame_out: u32,
    /// Envelopes parked until the messages before them arrive: first of the list, index plus one.
    pub parked: u32,
    /// Numbers of the next message out and in.
    pub next_out: u64,
    pub next_in: u64,
    /// Sends whose first fragment has not left, or is an answer that is not settled.
    pub held: List,
    /// Next in the work list, index plus one.
    pub work_next: u32,
    /// Numbers of the last notice of held messages, out and in.
    pub notice_out: u32,
    pub notice_in: u32,
    /// What the peer's messages take now of our envelopes and units; outlives the peer, until all is given back.
    pub kept_envelopes: u16,
    pub kept_units: u16,
    /// Posting number of the receive that was asked for last; those up to it need no asking.
    pub cursor: u64,
    /// What the peer asked.
    pub ask_context: u32,
    pub ask_tag: u32,
    /// What a probe of ours looks for.
    pub probe_context: u32,
    pub probe_tag: u32,
    /// The request that is out as an answer: slot plus one.
    pub answering: u32,
    /// An answer of the peer that is kept for a probe: envelope plus one.
    pub answered: u32,
    /// The sender's handle of an answer that is to be sent back.
    pub reject: u64,
}

impl PeerState {
    /// The state of a peer that nothing is known of: what it keeps of the old one is its place in the work list, and
    /// what old messages still take.
    pub fn afresh(&self) -> Self {
        Self {
            flags: self.flags & QUEUED,
            work_next: self.work_next,
            kept_envelopes: self.kept_envelopes,
            kept_units: self.kept_units,
            ..Self::new_zeroed()
        }
    }

    /// Gives a header its frame number, and the credit that is owed. To be followed by [`sent`](Self::sent) if the
    /// frame leaves.
    #[inline]
    pub fn stamp(&self, common: &mut Common) {
        common.envelopes.set(self.owed_envelopes);
        common.units.set(self.owed_units);
        common.frame.set(self.frame_out);
    }

    /// The stamped frame has left.
    #[inline]
    pub fn sent(&mut self) {
        self.owed_envelopes = 0;
        self.owed_units = 0;
        self.frame_out = self.frame_out.wrapping_add(1);
    }

    /// Takes in credit that came back.
    #[inline]
    pub fn gain(&mut self, envelopes: u16, units: u16) {
        self.envelopes = self.envelopes.saturating_add(envelopes).min(self.quota_envelopes);
        self.units = self.units.saturating_add(units).min(self.quota_units);
    }

    /// Owes credit. `true` where it is to be sent without waiting for a frame to ride on, from now on: from `step` on.
    #[inline]
    pub fn owe(&mut self, envelopes: u16, units: u16, step: (u16, u16)) -> bool {
        // A peer is owed no more than its share, which fits; one that sends beyond it may lose count of its own.
        self.owed_envelopes = self.owed_envelopes.wrapping_add(envelopes);
        self.owed_units = self.owed_units.wrapping_add(units);
        let due = (self.owed_envelopes >= step.0 || self.owed_units >= step.1) && !self.has(CREDIT_DUE);
        if due {
            self.set(CREDIT_DUE);
        }
        due
    }

    /// Whether something is held back that may go now, or has yet to be told of.
    #[inline]
    pub const fn is_held_up(&self) -> bool {
        !self.held.is_empty() && (!self.has(ANNOUNCED) || (self.envelopes != 0 && self.answering == 0))
    }

    /// Adds a send to those held back.
    pub fn hold(&mut self, pool: &mut Pool<'_, State>, slot: u32) {
        self.held.push(pool, slot);
        if self.has(VAIN) {
            self.clear(VAIN | ANNOUNCED); // what was asked in vain may find this one
        }
    }

    #[inline]
    pub const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub fn set(&mut self, flag: u16) {
        self.flags |= flag;
    }

    #[inline]
    pub fn clear(&mut self, flag: u16) {
        self.flags &= !flag;
    }
}

/// One rail to one peer.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct Link {
    pub endpoint: u32,
    /// Index of the rail.
    pub rail: u8,
    pub spare: u8,
    /// The round of the active list in which the rail had no room here: later ones of that round are not tried. Rounds
    /// start anew after 2^16, and a link that was last busy so long ago misses one.
    pub busy_in: u16,
    /// Megabytes per second, at least 1.
    pub bandwidth: u32,
    pub latency: u32,
    /// Bytes scheduled on this link over its bandwidth, in 1/1024 units: the link with the least is next (P13).
    pub share: u64,
}
