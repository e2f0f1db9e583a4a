//! Returning credit to peers.

use crate::pml::engine::Pml;
use crate::pml::peers::flags::CREDIT_DUE;
use crate::pml::rails::Rails;
use crate::wire;

impl<R: Rails> Pml<'_, R> {
    /// Owes a peer the credit of one message. Any frame to the peer carries what is owed. If more than half of the peer's share
    /// is owed, a credit frame becomes due.
    #[inline]
    pub(in crate::pml) fn owe(&mut self, to: u32, unit: bool) {
        let Some(peer) = self.peers.get_mut(to as usize) else { return };
        peer.granted.owe(unit);
        if peer.credit_comes_due(self.credit_slack) {
            self.queue_work(to);
        }
    }

    /// Sends a credit frame, if credit is due and no other frame has carried it.
    pub(in crate::pml) fn send_credit(&mut self, index: u32) {
        let Some(peer) = self.peers.get_mut(index as usize) else { return };
        if !peer.has(CREDIT_DUE) {
            return;
        }
        if peer.granted.owed == 0 {
            return peer.clear(CREDIT_DUE); // another frame has carried it
        }
        if self.control(index, wire::Credit::new()).is_ok()
            && let Some(peer) = self.peers.get_mut(index as usize)
        {
            peer.clear(CREDIT_DUE);
            self.counters.credits_sent = self.counters.credits_sent.wrapping_add(1);
        }
    }
}
