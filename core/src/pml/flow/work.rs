//! Sending what is due to the peers in the work list.

use crate::pml::engine::Pml;
use crate::pml::flow::work_list::WorkList;
use crate::pml::peers::flags::{ASKED, CREDIT_DUE, HOLDING, MIGRATING, QUEUED, REJECT_DUE};
use crate::pml::peers::state::PeerStatus;
use crate::pml::rails::Rails;
use crate::pml::stall::liveness::{KEEPALIVE_DUE, KEEPALIVE_REPLY_DUE};

impl<R: Rails> Pml<'_, R> {
    /// Puts a peer into the work list, unless it is there.
    pub(in crate::pml) fn queue_work(&mut self, index: u32) {
        let Some(peer) = self.peers.get_mut(index as usize) else { return };
        if peer.has(QUEUED) {
            return;
        }
        self.waiting = true;
        peer.set(QUEUED);
        self.work.push(self.peers, index);
    }

    /// Goes once through the work list. Peers to which something was sent go behind the others.
    pub(in crate::pml) fn run_work(&mut self) {
        let last = self.work.last();
        let mut served = WorkList::default();
        let mut holding = false;
        while let Some(index) = self.work.pop(self.peers) {
            let Some(peer) = self.peers.get_mut(index as usize) else { return };
            peer.clear(QUEUED);
            let before = peer.frame_out;
            if self.send_due(index) {
                match self.peers.get_mut(index as usize) {
                    Some(peer) if peer.frame_out != before && !peer.has(QUEUED) => {
                        peer.set(QUEUED);
                        served.push(self.peers, index);
                    }
                    _ => self.queue_work(index),
                }
            }
            holding |= self.peers.get(index as usize).is_some_and(|peer| peer.has(HOLDING));
            if last.is(index) {
                break;
            }
        }
        self.work.append(self.peers, served);
        // Peers that hold messages back are always in the list.
        self.posting_order.needed = holding;
    }

    /// Sends the frames that are due to a peer. Returns whether the peer stays in the work list.
    fn send_due(&mut self, index: u32) -> bool {
        let Some(peer) = self.peers.get(index as usize) else { return false };
        if peer.status != PeerStatus::Up {
            return false;
        }
        if peer.may_reject() {
            self.send_reject(index);
        }
        self.answer_ask(index);
        self.push_held(index);
        self.send_held_notice(index);
        self.send_keepalives(index);
        self.send_credit(index);
        self.ask(index);
        let Some(peer) = self.peers.get(index as usize) else { return false };
        peer.is_held_up()
            || peer.liveness.has(KEEPALIVE_REPLY_DUE | KEEPALIVE_DUE)
            || peer.has(REJECT_DUE | ASKED | CREDIT_DUE | HOLDING | MIGRATING)
    }
}
