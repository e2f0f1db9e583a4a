//! Counts of the messages of each peer that have arrived, for engines whose users ask for them.

use crate::arena::Arena;
#[cfg(feature = "counters")]
use crate::arena::OutOfMemory;
use crate::pml::engine::Pml;
use crate::pml::peers::arrivals_state::Arrivals;
use crate::pml::peers::state::PeerStatus;
use crate::pml::rails::Rails;
use crate::rail::Peer;

/// Whether arrivals can be counted: the feature `counters`.
const COUNTED: bool = cfg!(feature = "counters");

impl<'m, R: Rails> Pml<'m, R> {
    /// Bytes of the counts of [`count_arrivals`](Self::count_arrivals).
    pub const fn arrivals_bytes(peers: u32) -> usize {
        Arena::cost::<Arrivals>(peers as usize)
    }

    /// Counts the messages of each peer that arrive from now on, for [`arrived`](Self::arrived). Peers are added after that.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the arena has less than [`arrivals_bytes`](Self::arrivals_bytes) left.
    #[cfg(feature = "counters")]
    pub fn count_arrivals(&mut self, arena: &mut Arena<'m>) -> Result<(), OutOfMemory> {
        self.arrivals = arena.table(self.peers.len())?;
        Ok(())
    }

    /// The number of messages from a peer that have arrived since it was added, modulo 2^32. A message that arrives before an earlier
    /// one is counted with that one. The count of a peer that was lost stays until it is added again. 0 without
    /// [`count_arrivals`](Self::count_arrivals).
    pub fn arrived(&self, from: Peer) -> u32 {
        let index = from.0 as usize;
        if !COUNTED {
            return 0;
        }
        let (Some(arrivals), Some(peer)) = (self.arrivals.get(index), self.peers.get(index)) else { return 0 };
        if peer.status != PeerStatus::Up {
            return arrivals.last;
        }
        // An answer that waits for a probe may be sent back. Then it arrives again.
        let kept = u32::from(peer.asks.kept_answer.is_some());
        peer.next_in.wrapping_sub(arrivals.first).wrapping_add(arrivals.answers).wrapping_add(kept)
    }

    /// A peer was added.
    pub(in crate::pml) fn begin_arrivals(&mut self, index: u32) {
        if !COUNTED {
            return;
        }
        let first = self.peers.get(index as usize).map_or(0, |peer| peer.next_in);
        if let Some(arrivals) = self.arrivals.get_mut(index as usize) {
            *arrivals = Arrivals { first, answers: 0, last: 0 };
        }
    }

    /// A peer is being lost.
    pub(in crate::pml) fn end_arrivals(&mut self, index: u32) {
        if !COUNTED {
            return;
        }
        let last = self.arrived(Peer(index));
        if let Some(arrivals) = self.arrivals.get_mut(index as usize) {
            arrivals.last = last;
        }
    }

    /// An answer has found its receive or its probe.
    pub(in crate::pml) fn took_answer(&mut self, index: u32) {
        if !COUNTED {
            return;
        }
        if let Some(arrivals) = self.arrivals.get_mut(index as usize) {
            arrivals.answers = arrivals.answers.wrapping_add(1);
        }
    }
}
