//! What is kept for each peer: numbers, credit, held-back sends, and what is to be told to it.

use zerocopy::FromZeros;

use crate::pml::peers::flags::{ANNOUNCED, ASK_EMPTY, CREDIT_DUE, PROBE, QUEUED, REJECT_DUE};
use crate::pml::requests::list::List;
use crate::pml::requests::state::RequestState;
use crate::pml::stall::liveness::{OUT_OF_ROOM, PeerLiveness};
use crate::pool::Pool;
use crate::wire::Common;

/// Whether a peer can be sent to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromZeros)]
#[repr(u8)]
pub(crate) enum PeerStatus {
    Unknown,
    Up,
    Lost,
}

/// First what each short message needs: so it lies in one line.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct PeerState {
    pub status: PeerStatus,
    /// The peer is up and nothing of it is parked: the next message in its turn is to be taken at once.
    pub in_order: bool,
    /// Links in use with the lowest latency: these come first in the peer's row of links.
    pub firsts: u8,
    /// Whose turn it is among them; of a peer that was lost, why.
    pub turn: u8,
    /// Links in use, which come before those set suspended. 0 where all are: then everything waits.
    pub links: u8,
    /// Where the next first fragment goes: rail and endpoint. No rail has the number where no link is in use.
    pub rail: u8,
    pub flags: u16,
    pub endpoint: u32,
    /// Bytes of the longest body that goes eagerly.
    pub eager_body: u32,
    /// Numbers of the next message out and in, as they go over the wire: from a 64-bit number on.
    pub next_out: u32,
    pub next_in: u32,
    /// Number of the next frame to the peer.
    pub frame_out: u32,
    /// Credit to be given back: envelopes in the low half, units in the high half.
    pub owed: u32,
    /// Messages before this number may go at once, if they are short: nothing is held back, and there is credit of both
    /// kinds. Never behind `next_out`. This and the next two have only the low half of the number: no credit is larger.
    pub open_until: u16,
    /// What the peer has room for: the number that the next message may not reach for want of envelopes, and the same for
    /// want of payload units if each message took one.
    pub envelope_limit: u16,
    pub unit_limit: u16,
    /// The peer's whole credit: more than this never comes back.
    pub quota_envelopes: u16,
    pub quota_units: u16,
    /// Probes of ours that found nothing since one was asked for.
    pub probes: u8,
    /// Whether the peer makes progress: see `stall`.
    pub liveness: PeerLiveness,
    /// What the peer's messages take now of our envelopes and units; outlives the peer, until all is given back.
    pub kept_envelopes: u16,
    pub kept_units: u16,
    /// Sends whose first fragment has not left, or is an answer that is not settled.
    pub held: List,
    /// Envelopes parked until the messages before them arrive: first of the list, index plus one.
    pub parked: u32,
    /// Next in the work list, index plus one.
    pub work_next: u32,
    /// Numbers of the last notice of held messages, out and in: the low half of what goes over the wire, as none overtakes
    /// so many others.
    pub notice_out: u16,
    pub notice_in: u16,
    /// The answer that is to be sent back waits until all messages before this number have come: its low half.
    pub reject_at: u16,
    /// Asks for probes that found nothing, one after the other, since the peer last told of more. Unless it is 0, and a probe
    /// for another thing waits to be asked for, what `probe_context` and `probe_tag` name was the last of them.
    pub vain: u8,
    /// Low byte of `next_in` when the peer was last looked at for a sign of life.
    pub seen_in: u8,
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
    pub fn reset(&self) -> Self {
        Self {
            flags: self.flags & QUEUED,
            work_next: self.work_next,
            kept_envelopes: self.kept_envelopes,
            kept_units: self.kept_units,
            ..Self::new_zeroed()
        }
    }

    /// Credit for envelopes.
    #[inline]
    pub const fn envelopes(&self) -> u16 {
        self.envelope_limit.wrapping_sub(self.next_out as u16)
    }

    /// Credit for payload units.
    #[inline]
    pub const fn units(&self) -> u16 {
        self.unit_limit.wrapping_sub(self.next_out as u16)
    }

    /// Whether a short message may go at once.
    #[inline(always)]
    pub const fn is_open(&self) -> bool {
        self.open_until != self.next_out as u16
    }

    /// Sets the credit: no more than the quota.
    #[inline]
    fn set_credit(&mut self, envelopes: u16, units: u16) {
        self.envelope_limit = (self.next_out as u16).wrapping_add(envelopes.min(self.quota_envelopes));
        self.unit_limit = (self.next_out as u16).wrapping_add(units.min(self.quota_units));
        self.reopen();
    }

    /// With all of its quota as credit.
    pub fn with_credit(mut self) -> Self {
        self.set_credit(self.quota_envelopes, self.quota_units);
        self
    }

    /// To be called when credit or what is held back has changed, or a message has left by another than the quick way.
    #[inline]
    pub fn reopen(&mut self) {
        let open = if self.held.is_empty() { self.envelopes().min(self.units()) } else { 0 };
        self.open_until = (self.next_out as u16).wrapping_add(open);
    }

    /// A message has left that took an envelope, and perhaps a unit.
    #[inline]
    pub fn sent_message(&mut self, unit: bool) {
        let (envelopes, units) = (self.envelopes().saturating_sub(1), self.units().saturating_sub(unit.into()));
        self.next_out = self.next_out.wrapping_add(1);
        self.set_credit(envelopes, units);
    }

    /// Gives a header its frame number, and the credit that is owed. To be followed by [`sent`](Self::sent) if the
    /// frame leaves.
    #[inline]
    pub fn stamp(&self, common: &mut Common) {
        common.envelopes.set(self.owed as u16);
        common.units.set((self.owed >> 16) as u16);
        common.frame.set(self.frame_out);
    }

    /// The stamped frame has left.
    #[inline]
    pub fn sent(&mut self) {
        self.owed = 0;
        self.frame_out = self.frame_out.wrapping_add(1);
    }

    /// Takes in credit that came back.
    #[inline]
    pub fn gain(&mut self, envelopes: u16, units: u16) {
        self.set_credit(self.envelopes().saturating_add(envelopes), self.units().saturating_add(units));
    }

    /// Owes credit for an envelope, and perhaps for a unit. There are never more units than envelopes.
    #[inline(always)]
    pub fn owe(&mut self, unit: bool) {
        // A peer is owed no more than its share, which fits; one that sends beyond it may lose count of its own.
        self.owed = self.owed.wrapping_add(1 | u32::from(unit) << 16);
    }

    /// Whether one more envelope may be owed without anything done about it.
    #[inline(always)]
    pub const fn may_owe(&self, slack: u16) -> bool {
        (self.owed as u16) < slack
    }

    /// Whether what is owed is to be sent without waiting for a frame to ride on, from now on: beyond `slack` envelopes.
    #[inline]
    pub fn credit_comes_due(&mut self, slack: u16) -> bool {
        let due = self.owed as u16 > slack && !self.has(CREDIT_DUE);
        if due {
            self.set(CREDIT_DUE);
        }
        due
    }

    /// A message in its turn went to its receive: without a unit, where it has no payload.
    #[inline(always)]
    pub fn took_message(&mut self, unit: bool) {
        self.next_in = self.next_in.wrapping_add(1);
        self.owe(unit);
    }

    /// Whether something is held back that may go now, or has yet to be told of.
    #[inline]
    pub const fn is_held_up(&self) -> bool {
        !self.held.is_empty() && (!self.has(ANNOUNCED) || (self.envelopes() != 0 && self.answering == 0))
    }

    /// Whether the first of what is held back found no room when it was tried last, and is to be tried again.
    #[inline]
    pub const fn is_out_of_room(&self) -> bool {
        self.liveness.has(OUT_OF_ROOM) && !self.held.is_empty() && self.envelopes() != 0 && self.answering == 0
    }

    /// Whether an answer is to be sent back now. One that overtook others is not, before these have come: the next would
    /// overtake them as well.
    #[inline]
    pub const fn may_reject(&self) -> bool {
        self.has(REJECT_DUE) && self.reject_at.wrapping_sub(self.next_in as u16) as i16 <= 0
    }

    /// Whether it is time to ask for a probe: the more were in vain, the more probes must have found nothing since.
    #[inline]
    pub const fn may_ask_for_probe(&self) -> bool {
        let vain = if self.vain < 8 { self.vain } else { 7 };
        self.has(PROBE) && self.probes >= (1u8 << vain).wrapping_sub(1)
    }

    /// Adds a send to those held back.
    pub fn hold_send(&mut self, pool: &mut Pool<'_, RequestState>, slot: u32) {
        self.held.push(pool, slot);
        self.reopen();
        if self.has(ASK_EMPTY) {
            self.clear(ASK_EMPTY | ANNOUNCED); // what was asked in vain may find this one
        }
    }

    /// Takes a send out of those held back.
    pub fn release_held(&mut self, pool: &mut Pool<'_, RequestState>, slot: u32) {
        self.held.remove(pool, slot);
        self.reopen();
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
