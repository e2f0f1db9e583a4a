//! Peers that failed, and receives that wait for any source.
//!
//! The engine cannot know whether the message for such a receive would have come from the failed peer. Floor 4 knows which peers
//! a context has, so the engine reports the failure to floor 4, which decides.

use crate::pml::engine::Pml;
use crate::pml::matching::{ANY, Pattern};
use crate::pml::peers::flags::FAILURE_UNREPORTED;
use crate::pml::peers::state::PeerStatus;
use crate::pml::rails::Rails;
use crate::pml::requests::request::Request;
use crate::pml::requests::state::{Outcome, Phase};
use crate::rail::{Lost, Peer};

impl<R: Rails> Pml<'_, R> {
    /// Whether a peer is lost: nothing can be sent to it, and nothing more comes from it.
    #[inline]
    pub(crate) fn is_lost(&self, peer: Peer) -> bool {
        self.peers.get(peer.0 as usize).is_some_and(|state| state.status == PeerStatus::Lost)
    }

    /// Whether a peer is lost and did not end normally.
    pub(crate) fn is_failed(&self, peer: Peer) -> bool {
        self.why_lost(peer).is_some_and(|why| why != Lost::Closed)
    }

    /// Whether [`next_failed`](Self::next_failed) has a failure to report.
    #[inline(always)]
    pub(crate) const fn has_failure_to_report(&self) -> bool {
        self.unreported_failures != 0
    }

    /// Notes a loss for [`next_failed`](Self::next_failed).
    pub(crate) fn note_failed(&mut self, peer: Peer) {
        if let Some(state) = self.peers.get_mut(peer.0 as usize).filter(|state| !state.has(FAILURE_UNREPORTED)) {
            state.set(FAILURE_UNREPORTED);
            self.unreported_failures = self.unreported_failures.wrapping_add(1);
        }
    }

    /// The next peer that failed or ended normally, and was not reported yet. Each loss is reported once.
    #[cold]
    pub(crate) fn next_failed(&mut self) -> Option<Peer> {
        let news = (0u32..).zip(self.peers.iter_mut()).find(|(_, state)| state.has(FAILURE_UNREPORTED));
        let Some((index, state)) = news else {
            self.unreported_failures = 0; // a failed peer was added again meanwhile
            return None;
        };
        state.clear(FAILURE_UNREPORTED);
        self.unreported_failures = self.unreported_failures.saturating_sub(1);
        Some(Peer(index))
    }

    /// Ends a receive that has not matched, with the failure of `peer`. `back`: the peer was added again since. Returns whether
    /// the receive was ended; a receive that has matched goes on.
    pub(crate) fn interrupt(&mut self, request: Request, peer: Peer, back: bool) -> bool {
        let outcome = if back { Outcome::Restarted } else { self.outcome_of_lost(peer.0) };
        self.requests.get(request.0).is_some() && self.interrupt_slot(request.0.slot(), peer, outcome)
    }

    fn interrupt_slot(&mut self, slot: u32, peer: Peer, outcome: Outcome) -> bool {
        let Some(state) = self.requests.at_mut(slot).filter(|state| state.phase == Phase::Posted) else { return false };
        if !self.matcher.unpost(slot) {
            return false;
        }
        state.peer = peer.0;
        self.complete(slot, outcome);
        true
    }

    /// In a build without the feature `recovery`: the peer that may keep the messages for receives from any source away. That is one that
    /// failed, or one that ended normally if no peer is left.
    pub(crate) fn keeps_away(&self) -> Option<Peer> {
        let left = self.peers.iter().any(|state| state.status == PeerStatus::Up);
        (0..self.peers.len() as u32)
            .map(Peer)
            .find(|peer| if left { self.is_failed(*peer) } else { self.is_lost(*peer) })
    }

    /// As [`interrupt`](Self::interrupt), for all receives that take from any source.
    #[cold]
    pub(crate) fn interrupt_any_source(&mut self, peer: Peer) {
        self.interrupt_where(|pattern| pattern.source == ANY, peer);
    }

    /// As [`interrupt`](Self::interrupt), for all receives of a context that take from any source.
    #[cold]
    pub(crate) fn interrupt_all(&mut self, context: u32, peer: Peer) {
        self.interrupt_where(|pattern| pattern.context == context && pattern.source == ANY, peer);
    }

    fn interrupt_where(&mut self, wide: impl Fn(Pattern) -> bool, peer: Peer) {
        for slot in 0..self.requests.touched() {
            if self.matcher.posted(slot).is_some_and(&wide) {
                self.interrupt_slot(slot, peer, self.outcome_of_lost(peer.0));
            }
        }
    }
}
