//! Peers that were lost and then added again.

use crate::rail::Peer;

/// Peers that were lost and then added again: they have rejoined, as other processes.
#[derive(Debug)]
pub(super) struct Rejoins<'m> {
    /// How many rejoined.
    pub all: u32,
    /// For each peer the number of its last rejoin; 0 if it was never lost.
    pub last: &'m mut [u32],
}

impl Rejoins<'_> {
    pub fn of(&self, peer: Peer) -> u32 {
        self.last.get(peer.0 as usize).copied().unwrap_or(0)
    }

    /// A peer was lost: the next one at its place is another.
    pub fn note(&mut self, peer: Peer) {
        self.all = self.all.wrapping_add(1);
        if let Some(last) = self.last.get_mut(peer.0 as usize) {
            *last = self.all;
        }
    }
}
