//! Refusing messages, and the list of refusals that are to be sent.

use crate::list::OptSlot;
use crate::pml::engine::Pml;
use crate::pml::matching::INTERNAL_TAGS;
use crate::pml::rails::Rails;
use crate::pml::unexpected::refused_messages::RefusedMessages;
use crate::pml::unexpected::state::{EnvelopeStage, Unexpected};
use crate::rail::{Peer, SendError};
use crate::wire;
use crate::wire::Reason;

impl<R: Rails> Pml<'_, R> {
    /// The messages of users that were refused since [`refuse_unexpected`](Self::refuse_unexpected). `None` if there were none.
    /// Internal messages, which no receive of any tag takes, are not among them.
    pub fn refused_messages(&self) -> Option<RefusedMessages> {
        Some(self.refused_messages).filter(|refused| refused.count != 0)
    }

    /// Refuses a message because this engine takes no further ones.
    #[cold]
    pub(in crate::pml) fn refuse_further(&mut self, slot: u32) {
        if let Some(&Unexpected { peer, tag, total, context, .. }) = self.envelopes.at(slot)
            && tag < INTERNAL_TAGS
        {
            let refused = &mut self.refused_messages;
            refused.count = refused.count.saturating_add(1);
            refused.bytes = refused.bytes.saturating_add(total);
            if refused.count == 1 || total > refused.largest {
                (refused.largest, refused.peer, refused.tag, refused.context) = (total, Peer(peer), tag, context);
            }
        }
        self.refuse(slot, Reason::NoCommunicator);
    }

    /// Refuses a kept message: tells its sender and frees the envelope, now or when there is room. The message is in no queue.
    pub(in crate::pml) fn refuse(&mut self, slot: u32, reason: Reason) {
        let Some(envelope) = self.envelopes.at_mut(slot) else { return };
        if !envelope.rendezvous {
            return self.refuse_silently(slot); // the send is complete: the sender does not wait
        }
        envelope.stage = EnvelopeStage::Refused;
        envelope.sequence = reason as u32;
        if !envelope.is_filling() {
            self.put_refused(slot);
        }
    }

    /// Drops a kept message; its sender is not told.
    pub(in crate::pml) fn refuse_silently(&mut self, slot: u32) {
        let Some(handle) = self.envelopes.handle(slot) else { return };
        let Some(envelope) = self.envelopes.at_mut(slot) else { return };
        envelope.rendezvous = false;
        if envelope.is_filling() {
            envelope.stage = EnvelopeStage::Refused;
        } else {
            self.give_back(handle, true);
        }
    }

    /// Sends the refusal of a message, or puts it into the list of refusals if there is no room.
    pub(in crate::pml) fn put_refused(&mut self, slot: u32) {
        if !self.send_refusal(slot)
            && let Some(envelope) = self.envelopes.at_mut(slot)
        {
            envelope.next = self.refused;
            self.waiting = true;
            self.refused = OptSlot::some(slot);
        }
    }

    /// Sends refusals as far as there is room. A peer without room does not delay the others.
    pub(in crate::pml) fn run_refused(&mut self) {
        let (mut before, mut link) = (None, self.refused);
        while let Some(slot) = link.get() {
            let Some(envelope) = self.envelopes.at(slot) else { return };
            link = envelope.next;
            if !self.send_refusal(slot) {
                before = Some(slot);
                continue;
            }
            match before.and_then(|before| self.envelopes.at_mut(before)) {
                Some(before) => before.next = link,
                None => self.refused = link,
            }
        }
    }

    /// Tells a sender that its message is refused, and frees the envelope. `false`: there is no room now.
    fn send_refusal(&mut self, slot: u32) -> bool {
        let Some(handle) = self.envelopes.handle(slot) else { return true };
        let Some(envelope) = self.envelopes.at(slot) else { return true };
        let (to, sender, told) = (envelope.peer, envelope.sender, !envelope.rendezvous);
        let reason = Reason::from_wire(envelope.sequence).unwrap_or(Reason::NoCommunicator);
        if !told {
            if self.control(to, wire::Reject::new(sender, reason)) == Err(SendError::Busy) {
                return false;
            }
            self.counters.rejects_sent = self.counters.rejects_sent.wrapping_add(1);
        }
        self.give_back(handle, true);
        true
    }
}
