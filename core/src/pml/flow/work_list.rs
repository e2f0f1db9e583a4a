//! The list of peers for which something is to be sent.

use crate::list::OptSlot;
use crate::pml::peers::state::PeerState;

/// A list of peers, first in, first out. Its links are [`PeerState::work_next`].
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::pml) struct WorkList {
    head: OptSlot,
    tail: OptSlot,
}

impl WorkList {
    #[inline]
    pub const fn first(&self) -> OptSlot {
        self.head
    }

    pub const fn last(&self) -> OptSlot {
        self.tail
    }

    /// Appends a peer that is in no list.
    pub fn push(&mut self, peers: &mut [PeerState], index: u32) {
        let link = OptSlot::some(index);
        if let Some(peer) = peers.get_mut(index as usize) {
            peer.work_next = OptSlot::NONE;
        }
        match self.tail.get().and_then(|last| peers.get_mut(last as usize)) {
            Some(last) => last.work_next = link,
            None => self.head = link,
        }
        self.tail = link;
    }

    /// Takes the first peer out.
    pub fn pop(&mut self, peers: &[PeerState]) -> Option<u32> {
        let index = self.head.get()?;
        self.head = peers.get(index as usize)?.work_next;
        if self.head.is_none() {
            self.tail = OptSlot::NONE;
        }
        Some(index)
    }

    /// Appends all peers of another list.
    pub fn append(&mut self, peers: &mut [PeerState], other: Self) {
        if other.head.is_none() {
            return;
        }
        match self.tail.get().and_then(|tail| peers.get_mut(tail as usize)) {
            Some(tail) => tail.work_next = other.head,
            None => self.head = other.head,
        }
        self.tail = other.tail;
    }
}
