//! Peers that were lost and then added again.

use crate::arena::{Arena, OutOfMemory};
pub(super) use crate::pml::RECOVERY;
use crate::rail::Peer;

/// Counts rejoins: each is a peer that was lost and whose number another process has then.
#[derive(Debug)]
pub(super) struct Rejoins<'m> {
    /// The number of rejoins of all peers so far.
    all: u32,
    /// For each peer the number of its last rejoin, counted over all peers from 1. 0 if it never rejoined.
    last: &'m mut [u32],
}

impl<'m> Rejoins<'m> {
    pub fn new(arena: &mut Arena<'m>, peers: u32) -> Result<Self, OutOfMemory> {
        let last = if RECOVERY { arena.table(peers as usize)? } else { Default::default() };
        Ok(Self { all: 0, last })
    }

    pub const fn cost(peers: u32) -> usize {
        if RECOVERY { Arena::cost::<u32>(peers as usize) } else { 0 }
    }

    /// The number of rejoins of all peers so far.
    #[inline]
    pub const fn all(&self) -> u32 {
        if RECOVERY { self.all } else { 0 }
    }

    /// The number of a peer's last rejoin. 0 if it never rejoined.
    pub fn of(&self, peer: Peer) -> u32 {
        if RECOVERY { self.last.get(peer.0 as usize).copied().unwrap_or(0) } else { 0 }
    }

    /// Counts a rejoin of a lost peer: the process that has its number from now on is another one.
    pub fn note(&mut self, peer: Peer) {
        self.all = self.all.wrapping_add(1);
        if let Some(last) = self.last.get_mut(peer.0 as usize) {
            *last = self.all;
        }
    }
}
