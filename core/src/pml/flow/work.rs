//! Peers that have something to be told.

use crate::pml::engine::Pml;
use crate::pml::peers::flags::{ASKED, CREDIT_DUE, HOLDING, ORPHANED, QUEUED, REJECT_DUE};
use crate::pml::peers::state::{PeerState, Standing};
use crate::pml::rails::Rails;
use crate::pml::stall::signs::{TO_ANSWER, TO_ASK};

impl<R: Rails> Pml<'_, R> {
    /// Puts a peer into the list of those that have something to be told.
    pub(in crate::pml) fn put_to_work(&mut self, index: u32) {
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
            if self.tell(index) {
                match self.peers.get_mut(index as usize) {
                    Some(peer) if peer.frame_out != before && !peer.has(QUEUED) => {
                        peer.set(QUEUED);
                        peer.work_next = 0;
                        append(self.peers, (&mut served, &mut served_last), index);
                    }
                    _ => self.put_to_work(index),
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
        self.posted.needed = holding;
    }

    /// Tells a peer what it has to be told; says whether something is left.
    fn tell(&mut self, index: u32) -> bool {
        let Some(peer) = self.peers.get(index as usize) else { return false };
        if peer.standing != Standing::Up {
            return false;
        }
        if peer.may_reject() {
            self.tell_reject(index);
        }
        self.tell_asked(index);
        self.push_held(index);
        self.tell_held(index);
        self.tell_signs(index);
        self.tell_credit(index);
        self.ask(index);
        let Some(peer) = self.peers.get(index as usize) else { return false };
        peer.is_held_up()
            || peer.signs.has(TO_ANSWER | TO_ASK)
            || peer.has(REJECT_DUE | ASKED | CREDIT_DUE | HOLDING | ORPHANED)
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
