//! The fallback of the engine's communicators to its rails ([`Fallback`]).

use towline_core::convertor::Span;
use towline_core::pml::Request as EngineRequest;
use towline_core::pml::matching::ANY;
use towline_core::pml::offload::{DeviceFailure, Fallback, Held};
use towline_core::rail::Peer;

use crate::matching::Matching;

impl Matching {
    /// Whether messages of other devices may still come.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.has_left && !self.has_all_messages
    }

    /// What has arrived from a peer, and what of it is left in the device. `None` if the device does not tell.
    fn count(&mut self, peer: u32) -> Option<(u32, u64)> {
        self.transport.count(peer).ok()
    }

    /// The own device has failed: what it had of messages is lost.
    pub(crate) fn note_own_failure(&mut self) {
        for (_, peer) in self.peers.iter_mut() {
            peer.has_all = false;
            peer.has_loss |= self.has_all_messages && !peer.has_taken_all();
        }
        self.may_be_drained = true;
    }

    /// Looks whether all messages of a peer's device have arrived.
    fn look_for_all(&mut self, number: u32) -> bool {
        let has_failed = self.transport.lost().is_some();
        let Some(peer) = self.peers.get_mut(number) else { return true };
        if peer.has_all {
            return true;
        }
        if !peer.has_told() {
            return false;
        }
        if peer.is_cut_off() && !has_failed {
            let _ = self.transport.lose_peer(number); // nothing of it arrives from now on
        }
        let counted = self.count(number);
        self.take_ended(); // what has been received is not lost
        let has_failed = self.transport.lost().is_some();
        let Some(peer) = self.peers.get_mut(number) else { return true };
        let (has_all, has_loss) = match counted {
            // A device drops messages of a lost peer that are not complete, and those behind them.
            Some((_, left)) if peer.is_cut_off() => (true, !peer.has_taken_all_but(left)),
            Some((arrived, _)) => (peer.has_given(arrived), false),
            None => (has_failed, has_failed && !peer.has_taken_all()),
        };
        (peer.has_all, peer.has_loss) = (has_all, has_loss);
        has_all
    }
}

impl Fallback for Matching {
    fn has_failed(&self) -> bool {
        self.transport.lost().is_some() || self.is_cut_off
    }

    fn leave(&mut self) {
        self.has_left = true;
        if !self.takeover.is_active() && self.transport.lost().is_none() {
            self.take_over();
        }
    }

    fn next_held(&mut self) -> Option<Held> {
        let send = self.held.pop_front()?;
        Some(Held { request: send.operation.request, mode: send.mode, data: send.data })
    }

    fn next_announcement(&mut self) -> Option<(Peer, Span)> {
        let has_failed = self.transport.lost().is_some();
        self.peers
            .next_announcement(has_failed, |peer| self.pipeline.moves(peer))
            .map(|(number, span)| (Peer(number), span))
    }

    fn announced(&mut self, peer: Peer) {
        self.peers.announced(peer.0);
    }

    fn announcement_of(&mut self, peer: Peer) -> Option<Span> {
        self.peers.place(peer.0)
    }

    fn heard(&mut self, peer: Peer) {
        self.peers.read_place(peer.0);
    }

    fn has_all(&mut self, is_lost: &mut dyn FnMut(Peer) -> bool) -> bool {
        for (number, peer) in self.peers.iter_mut() {
            peer.is_gone = peer.is_gone || is_lost(Peer(number));
        }
        let mut has_all = true;
        for number in self.peers.numbers() {
            let is_gone = self.peers.get_mut(number).is_some_and(|peer| peer.is_gone);
            has_all &= is_gone || self.look_for_all(number);
        }
        if !has_all {
            return false;
        }
        self.progress(); // receives that the host has find the last messages of the device
        if self.transport.lost().is_none() && !self.is_matched {
            return false; // there was no room for a message
        }
        (self.has_all_messages, self.may_be_drained) = (true, true);
        true
    }

    fn next_unmatched(&mut self) -> Option<EngineRequest> {
        loop {
            let posted = self.takeover.take_first()?;
            let source = posted.source_rank().unwrap_or(ANY);
            match self.take_loss(posted.comm, source) {
                Some(peer) => self.fail(posted.request, DeviceFailure::MessagesLost(peer.0)),
                None => return Some(posted.request),
            }
        }
    }

    fn take_loss(&mut self, comm: u32, source: u32) -> Option<Peer> {
        let members = self.members.get(&comm)?;
        let numbers = members.peers.iter().enumerate().filter(|(rank, _)| source == ANY || *rank == source as usize);
        for (_, number) in numbers {
            if let Some(peer) = self.peers.get_mut(*number).filter(|peer| peer.has_loss) {
                peer.has_loss = false;
                self.may_be_drained = true;
                return Some(Peer(*number));
            }
        }
        None
    }

    fn is_drained(&mut self) -> bool {
        if self.takeover.is_active() || !std::mem::take(&mut self.may_be_drained) {
            return false;
        }
        for number in self.peers.numbers() {
            let has_loss = self.peers.get(number).is_some_and(|peer| peer.has_loss);
            if has_loss || self.count(number).is_some_and(|(_, left)| left != 0) {
                return false;
            }
        }
        true
    }
}
