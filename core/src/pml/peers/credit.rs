//! Credit for unexpected messages, in both directions. Its elements are envelopes, and units for payload.

use zerocopy::FromZeros;

/// The credit that the peer grants to us, and the number of our next message.
///
/// All limits are numbers of messages, of which they store the low half: no credit is larger than 2^16 - 1. There is never more
/// credit for units than for envelopes.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct SendCredit {
    /// Number of the next message to the peer: the low 32 bits of a 64-bit number, as they go over the wire.
    pub next_out: u32,
    /// Short messages with numbers before this one may leave at once: nothing is held back, and there is credit of both kinds.
    /// Never behind `next_out`.
    open_until: u16,
    /// The number of the first message for which there is no envelope.
    envelope_limit: u16,
    /// The number of the first message for which there is no payload unit, if each message takes one.
    unit_limit: u16,
    /// All envelopes that the peer grants to us. Credit that comes back never exceeds them.
    pub quota_envelopes: u16,
    /// All payload units that the peer grants to us.
    pub quota_units: u16,
    /// Number of our last notice that messages are held back for lack of credit: the low half of the number on the wire. No
    /// notice overtakes 2^15 others.
    pub notice_out: u16,
}

impl SendCredit {
    /// The credit at the beginning: the whole quota.
    pub fn whole(next_out: u32, quota_envelopes: u16, quota_units: u16) -> Self {
        let mut credit = Self { next_out, quota_envelopes, quota_units, ..Self::new_zeroed() };
        credit.set(quota_envelopes, quota_units, false);
        credit
    }

    /// Envelopes that we may still use.
    #[inline]
    pub const fn envelopes(&self) -> u16 {
        self.envelope_limit.wrapping_sub(self.next_out as u16)
    }

    /// Payload units that we may still use.
    #[inline]
    pub const fn units(&self) -> u16 {
        self.unit_limit.wrapping_sub(self.next_out as u16)
    }

    /// Whether a short message may go at once.
    #[inline(always)]
    pub const fn is_open(&self) -> bool {
        self.open_until != self.next_out as u16
    }

    /// Sets the credit, to the quota at most. `holds`: messages are held back.
    #[inline]
    fn set(&mut self, envelopes: u16, units: u16, holds: bool) {
        self.envelope_limit = (self.next_out as u16).wrapping_add(envelopes.min(self.quota_envelopes));
        self.unit_limit = (self.next_out as u16).wrapping_add(units.min(self.quota_units));
        self.reopen(holds);
    }

    /// Sets `open_until` after a change of the credit, or of whether messages are held back.
    #[inline]
    pub fn reopen(&mut self, holds: bool) {
        let open = if holds { 0 } else { self.envelopes().min(self.units()) };
        self.open_until = (self.next_out as u16).wrapping_add(open);
    }

    /// A message has left that took an envelope, and a unit if `unit`.
    #[inline]
    pub fn sent_message(&mut self, unit: bool, holds: bool) {
        let (envelopes, units) = (self.envelopes().saturating_sub(1), self.units().saturating_sub(unit.into()));
        self.next_out = self.next_out.wrapping_add(1);
        self.set(envelopes, units, holds);
    }

    /// Credit has come back.
    #[inline]
    pub fn gain(&mut self, envelopes: u16, units: u16, holds: bool) {
        self.set(self.envelopes().saturating_add(envelopes), self.units().saturating_add(units), holds);
    }
}

/// The credit that we grant to the peer: the part that it uses now, and the part that we still have to return.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct Granted {
    /// Credit that we still have to return: envelopes in the low half, units in the high half.
    pub owed: u32,
    /// Envelopes of ours that the peer's messages take now. The count outlives the peer, until all envelopes are free.
    pub kept_envelopes: u16,
    /// Units of ours that the peer's messages take now.
    pub kept_units: u16,
}

impl Granted {
    /// One more envelope is owed, and a unit if `unit`. There are never more units than envelopes.
    #[inline(always)]
    pub fn owe(&mut self, unit: bool) {
        // At most the peer's share is owed, which fits 16 bits. A peer that exceeds its credit makes only its own count wrong.
        self.owed = self.owed.wrapping_add(1 | u32::from(unit) << 16);
    }

    /// Whether one more envelope may be owed without a credit frame.
    #[inline(always)]
    pub const fn may_owe(&self, slack: u16) -> bool {
        (self.owed as u16) < slack
    }

    /// Whether more than `slack` envelopes are owed.
    #[inline]
    pub const fn exceeds(&self, slack: u16) -> bool {
        self.owed as u16 > slack
    }

    /// Counts a message of the peer that is kept: it takes an envelope, and a unit if `unit`.
    pub fn keep(&mut self, unit: bool) {
        self.kept_envelopes = self.kept_envelopes.saturating_add(1);
        self.kept_units = self.kept_units.saturating_add(unit.into());
    }

    /// Counts a message of the peer that is not kept any more.
    pub fn release(&mut self, unit: bool) {
        self.kept_envelopes = self.kept_envelopes.saturating_sub(1);
        self.kept_units = self.kept_units.saturating_sub(unit.into());
    }
}
