//! Peers that have something to be told.

use crate::pml::engine::Pml;
use crate::pml::peers::flags::{ASKED, CREDIT_DUE, HOLDING, MIGRATING, QUEUED, REJECT_DUE};
use crate::pml::peers::state::{PeerState, PeerStatus};
use crate::pml::rails::Rails;
use crate::pml::stall::liveness::{KEEPALIVE_DUE, KEEPALIVE_REPLY_DUE};

impl<R: Rails> Pml<'_, R> {
    /// Puts a peer into the list of those that have something to be told.
    pub(in crate::pml) fn queue_work(&mut self, index: u32) {
        let Some(peer) = self.peers.get_mut(index as usize) else { return };
        if peer.has(QUEUED) {
            return;
        }
        self.waiting = true;
        peer.set(QUEUED);
        peer.work_next = 0;
        append(self.peers, (&mut self.work_head, &mut self.work_tail), index);
    }

    /// Goes once through the peers that have something to be told. Those for whom there was room go behind the others then.
    pub(in crate::pml) fn run_work(&mut self) {
        let last = self.work_tail;
        let (mut served, mut served_last) = (0, 0);
        let mut holding = false;
        while let Some(index) = self.work_head.checked_sub(1) {
            let Some(peer) = self.peers.get_mut(index as usize) else { return };
            self.work_head = peer.work_next;
            if self.work_head == 0 {
                self.work_tail = 0;
            }
            peer.clear(QUEUED);
            let before = peer.frame_out;
            if self.send_due(index) {
                match self.peers.get_mut(index as usize) {
                    Some(peer) if peer.frame_out != before && !peer.has(QUEUED) => {
                        peer.set(QUEUED);
                        peer.work_next = 0;
                        append(self.peers, (&mut served, &mut served_last), index);
                    }
                    _ => self.queue_work(index),
                }
            }
            holding |= self.peers.get(index as usize).is_some_and(|peer| peer.has(HOLDING));
            if index.wrapping_add(1) == last {
                break;
            }
        }
        if served != 0 {
            match self.work_tail.checked_sub(1).and_then(|tail| self.peers.get_mut(tail as usize)) {
                Some(tail) => tail.work_next = served,
                None => self.work_head = served,
            }
            self.work_tail = served_last;
        }
        // Peers that hold back are in the list all the time.
        self.posting_order.needed = holding;
    }

    /// Tells a peer what it has to be told; says whether something is left.
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

/// Puts a peer, which is in no list, at the end of one.
fn append(peers: &mut [PeerState], (head, last): (&mut u32, &mut u32), index: u32) {
    let link = index.wrapping_add(1);
    match last.checked_sub(1).and_then(|last| peers.get_mut(last as usize)) {
        Some(before) => before.work_next = link,
        None => *head = link,
    }
    *last = link;
}
