//! The state of a peer.

use zerocopy::FromZeros;

use super::asks::{Asks, PeerAsk};
use super::credit::{Granted, SendCredit};
use super::flags::{ANNOUNCED, ASK_EMPTY, CREDIT_DUE, PROBE, QUEUED, REJECT_DUE};
use crate::list::{List, OptSlot};
use crate::pml::matching::HeldTable;
use crate::pml::requests::state::{Remote, RequestState};
use crate::pml::stall::liveness::{OUT_OF_ROOM, PeerLiveness};
use crate::pool::Pool;
use crate::wire::Common;

/// Whether messages can be sent to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromZeros)]
#[repr(u8)]
pub(crate) enum PeerStatus {
    /// The peer was never added, or was deleted.
    Unknown,
    /// The peer is present.
    Up,
    /// The peer was lost, and not added again.
    Lost,
}

/// The links of a peer that are in use, and the one that carries the next first fragment.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct Route {
    /// The endpoint to which the next first fragment goes.
    pub endpoint: u32,
    /// The rail by which the next first fragment goes. If no link is in use, no rail has this index.
    pub rail: u8,
    /// The number of links in use that have the lowest latency. They come first in the peer's row of links.
    pub firsts: u8,
    /// The place of the next of them. Of a lost peer: the code of the reason.
    pub turn: u8,
    /// The number of links in use. They come before the suspended ones. If it is 0, everything waits.
    pub links: u8,
}

/// The state of a peer. The fields that each short message needs come first and lie within 64 bytes.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(crate) struct PeerState {
    pub status: PeerStatus,
    /// The peer is up, and none of its messages waits for an earlier one. So the message with number `next_in` may be delivered
    /// at once.
    pub in_order: bool,
    /// The constants of [`flags`](super::flags).
    pub flags: u16,
    pub route: Route,
    /// Bytes of the longest body that goes eagerly.
    pub eager_body: u32,
    /// Our credit, and the numbers of our messages.
    pub credit: SendCredit,
    /// Number of the next message from the peer, as it goes over the wire.
    pub next_in: u32,
    /// Number of the next frame to the peer.
    pub frame_out: u32,
    pub granted: Granted,
    /// Sends whose first fragment has not left, or is an answer that is not settled.
    pub held: List,
    /// The first of the envelopes whose messages wait for earlier ones.
    pub out_of_order: OptSlot,
    /// Whether the peer makes progress.
    pub liveness: PeerLiveness,
    /// Low byte of `next_in` at the last check for an answer.
    pub seen_in: u8,
    /// The low half of a number: the answer that is to be sent back waits until all messages before it have arrived.
    pub reject_at: u16,
    /// Our asks to the peer.
    pub asks: Asks,
    /// The peer's ask to us, and our answer.
    pub asked: PeerAsk,
    /// The next peer in the work list.
    pub work_next: OptSlot,
    /// The sender's handle of an answer that is to be sent back.
    pub reject: u64,
}

/// The fields before the asks are those that each message needs.
const _: () = assert!(core::mem::offset_of!(PeerState, asks) <= 64);

impl PeerState {
    /// The state of an unknown peer, with the old place in the work list, and the old counts of the credit that is in use.
    pub fn reset(&self) -> Self {
        let granted = Granted { owed: 0, ..self.granted };
        Self { flags: self.flags & QUEUED, work_next: self.work_next, granted, ..Self::new_zeroed() }
    }

    /// Updates `open_until`. To be called when the list of held-back sends has changed.
    #[inline]
    fn reopen(&mut self) {
        self.credit.reopen(!self.held.is_empty());
    }

    /// A message has left that took an envelope, and a unit if `unit`.
    #[inline]
    pub fn sent_message(&mut self, unit: bool) {
        self.credit.sent_message(unit, !self.held.is_empty());
    }

    /// Credit has come back.
    #[inline]
    pub fn gain(&mut self, envelopes: u16, units: u16) {
        self.credit.gain(envelopes, units, !self.held.is_empty());
    }

    /// Gives a header its frame number, and the credit that is owed. [`sent`](Self::sent) follows if the frame leaves.
    #[inline]
    pub fn stamp(&self, common: &mut Common) {
        common.envelopes.set(self.granted.owed as u16);
        common.units.set((self.granted.owed >> 16) as u16);
        common.frame.set(self.frame_out);
    }

    /// The stamped frame has left.
    #[inline]
    pub fn sent(&mut self) {
        self.granted.owed = 0;
        self.frame_out = self.frame_out.wrapping_add(1);
    }

    /// Whether a credit frame becomes due now, because more than `slack` envelopes are owed.
    #[inline]
    pub fn credit_comes_due(&mut self, slack: u16) -> bool {
        let due = self.granted.exceeds(slack) && !self.has(CREDIT_DUE);
        if due {
            self.set(CREDIT_DUE);
        }
        due
    }

    /// Counts a message that went to its receive in its turn: its credit is owed. `unit`: it has payload.
    #[inline(always)]
    pub fn took_message(&mut self, unit: bool) {
        self.next_in = self.next_in.wrapping_add(1);
        self.granted.owe(unit);
    }

    /// Whether a held-back send may leave as soon as a rail has room: there is credit, and no answer is out.
    #[inline]
    pub const fn may_send_held(&self) -> bool {
        self.credit.envelopes() != 0 && self.asked.answering.is_none()
    }

    /// Whether a held-back send may go now, or the peer has no notice of it yet.
    #[inline]
    pub const fn is_held_up(&self) -> bool {
        !self.held.is_empty() && (!self.has(ANNOUNCED) || self.may_send_held())
    }

    /// Whether the first held-back send found no room at its last try, and is to be tried again.
    #[inline]
    pub const fn is_out_of_room(&self) -> bool {
        self.liveness.has(OUT_OF_ROOM) && !self.held.is_empty() && self.may_send_held()
    }

    /// Whether an answer is to be sent back now. If the answer overtook other messages, the reject waits until these have
    /// arrived: otherwise the next answer would overtake them as well.
    #[inline]
    pub const fn may_reject(&self) -> bool {
        self.has(REJECT_DUE) && self.reject_at.wrapping_sub(self.next_in as u16) as i16 <= 0
    }

    /// Whether the peer is to be asked for the message of a probe now.
    #[inline]
    pub const fn may_ask_for_probe(&self) -> bool {
        self.has(PROBE) && self.asks.may_ask_for_probe()
    }

    /// Holds a send back.
    pub fn hold_send(&mut self, pool: &mut Pool<'_, RequestState>, slot: u32) {
        self.held.push(pool, slot);
        self.reopen();
        if self.has(ASK_EMPTY) {
            self.clear(ASK_EMPTY | ANNOUNCED); // the ask that found nothing may find this send
        }
    }

    /// Takes a send out of the held-back ones.
    pub fn release_held(&mut self, pool: &mut Pool<'_, RequestState>, table: &mut HeldTable<'_>, slot: u32) {
        self.held.remove(pool, slot);
        if let Some(state) = pool.at_mut(slot).filter(|state| state.remote.has(Remote::IN_TABLE)) {
            state.remote.clear(Remote::IN_TABLE);
            table.remove(slot);
        }
        self.reopen();
    }

    /// Marks the peer as lost. `code`: the code of the reason.
    pub fn set_lost(&mut self, code: u8) {
        (self.status, self.route.turn) = (PeerStatus::Lost, code);
    }

    /// The code of the reason why the peer was lost. `None` if it was not.
    pub fn lost_code(&self) -> Option<u8> {
        (self.status == PeerStatus::Lost).then_some(self.route.turn)
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
