//! Cancelling a send that has not left.

use crate::pml::engine::Pml;
use crate::pml::rails::Rails;
use crate::pml::requests::request::Request;
use crate::pml::requests::state::{Outcome, Phase, RECEIVE, RequestState};

impl<R: Rails> Pml<'_, R> {
    /// Cancels a send of which nothing has left: it is held back, because the peer has granted no more credit or no rail has
    /// room. Then its outcome is [`Failure::Cancelled`](crate::pml::Failure::Cancelled), and the peer learns nothing of it.
    /// Returns whether it was cancelled.
    ///
    /// Otherwise the send goes on as if this had not been called: the peer has the message, or its first fragment, and may have
    /// matched it already. This includes a synchronous send whose first fragment waits for its receive at the peer. While the
    /// peer decides whether it takes a message for which it has asked, that message cannot be cancelled either. If the message is
    /// sent back, it can be cancelled.
    pub fn cancel_send(&mut self, request: Request) -> bool {
        let held = |state: &&RequestState| state.phase == Phase::Held && state.flags & RECEIVE == 0;
        let Some(to) = self.requests.get(request.0).filter(held).map(|state| state.peer) else { return false };
        let slot = request.0.slot();
        if let Some(peer) = self.peers.get_mut(to as usize) {
            peer.release_held(&mut self.requests, &mut self.held_table, slot);
        }
        self.complete(slot, Outcome::Cancelled);
        true
    }
}
