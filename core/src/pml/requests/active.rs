//! Requests that have something to send.

use crate::list::List;
use crate::pml::engine::Pml;
use crate::pml::rails::Rails;
use crate::pml::requests::state::{ACTIVE, Phase};

impl<R: Rails> Pml<'_, R> {
    /// Puts a request into the list of active ones, unless it is there.
    pub(in crate::pml) fn activate(&mut self, slot: u32) {
        let Some(state) = self.requests.at_mut(slot) else { return };
        if state.flags & ACTIVE == 0 {
            self.waiting = true;
            state.flags |= ACTIVE;
            self.active.push(&mut self.requests, slot);
        }
    }

    /// Takes a request out of the list of active ones, if it is there.
    pub(in crate::pml) fn deactivate(&mut self, slot: u32) {
        let Some(state) = self.requests.at_mut(slot) else { return };
        if state.flags & ACTIVE != 0 {
            state.flags &= !ACTIVE;
            self.active.remove(&mut self.requests, slot);
        }
    }

    /// Goes once through the active requests. Each sends as much as the rails accept.
    pub(in crate::pml) fn run_active(&mut self) {
        self.round = self.round.wrapping_add(1).max(1);
        let mut next = self.active.first();
        while let Some(slot) = next.get() {
            next = List::after(&self.requests, slot);
            let Some(state) = self.requests.at(slot) else { return };
            match state.phase {
                Phase::Streaming => self.stream(slot),
                Phase::Responding => self.respond(slot),
                Phase::Receiving => self.advance_receive(slot),
                Phase::Leaving => {
                    let (to, idle, outcome) = (state.peer, state.is_idle(), state.outcome);
                    if idle && self.drained(to) {
                        self.deactivate(slot);
                        self.ended = self.ended.wrapping_add(1);
                        self.complete(slot, outcome);
                    }
                }
                _ => self.deactivate(slot),
            }
        }
    }

    /// Whether no active request can go on before a link is enabled or up again.
    pub(in crate::pml) fn active_is_waiting(&self) -> bool {
        let mut next = self.active.first();
        while let Some(slot) = next.get() {
            next = List::after(&self.requests, slot);
            let waits = self.requests.at(slot).is_none_or(|state| {
                matches!(state.phase, Phase::Streaming | Phase::Responding | Phase::Receiving)
                    && self.peers.get(state.peer as usize).is_none_or(|peer| peer.route.links == 0)
            });
            if !waits {
                return false;
            }
        }
        true
    }
}
