//! The answer to the sender of a matched message: ack or finish.

use crate::pml::engine::Pml;
use crate::pml::rails::Rails;
use crate::pml::requests::state::{Outcome, Phase};
use crate::rail::SendError;
use crate::wire;

impl<R: Rails> Pml<'_, R> {
    /// Answers the sender of a matched message, now or when there is room.
    pub(in crate::pml) fn respond_or_queue(&mut self, slot: u32) {
        self.forget_posting(slot); // before the request enters a list
        self.activate(slot);
        self.respond(slot);
    }

    /// Sends the ack or finish. Then the request leaves the active list; without room it stays there.
    pub(in crate::pml) fn respond(&mut self, slot: u32) {
        let Some(handle) = self.requests.handle(slot) else { return };
        let Some(state) = self.requests.at(slot) else { return };
        let (to, sender, wanted) = (state.peer, state.remote.as_handle(), state.wanted);
        let more = state.moved < state.wanted;
        let sent = if more {
            let ack = wire::Ack::new(sender, handle, wanted);
            let plan = self.plan(slot);
            self.control(to, plan.map_or(ack, |plan| ack.with_device(plan.flag, plan.by_frames)))
        } else {
            self.control(to, wire::Finish::new(sender))
        };
        match sent {
            Ok(()) => {}
            Err(SendError::Busy) => return,
            Err(_) => {
                self.deactivate(slot);
                self.ended = self.ended.wrapping_add(1);
                self.release_piece(slot);
                return self.complete(slot, Outcome::PeerFailed);
            }
        }
        let count = if more { &mut self.counters.acks_sent } else { &mut self.counters.finishes_sent };
        *count = count.wrapping_add(1);
        self.deactivate(slot);
        if let Some(state) = self.requests.at_mut(slot) {
            state.phase = Phase::Receiving;
        }
        // If a rail still writes, the request has not ended, and this counts one too many: the caller looks once in vain.
        self.ended = self.ended.wrapping_add(u32::from(!more));
        if !self.rdma.is_idle() {
            return self.advance_receive(slot);
        }
        self.settle_receive(slot);
    }
}
