//! Sending held-back messages as soon as there is credit and room.

use crate::pml::engine::Pml;
use crate::pml::peers::state::PeerStatus;
use crate::pml::rails::Rails;
use crate::pml::requests::state::SYNCHRONOUS;
use crate::pml::send::schedule::advance_turn;
use crate::pml::stall::liveness::OUT_OF_ROOM;
use crate::rail::{COPIED, MULTIRAIL, Rail, SendError};

impl<R: Rails> Pml<'_, R> {
    /// Sends first fragments of a peer's held-back sends, in order, as far as credit and room go.
    pub(in crate::pml) fn push_held(&mut self, to: u32) {
        let mut none_left = true;
        loop {
            let Some(peer) = self.peers.get_mut(to as usize) else { return };
            peer.liveness.clear(OUT_OF_ROOM);
            // While an answer is out, no other message is sent: it could overtake the answer.
            if peer.status != PeerStatus::Up || peer.asked.answering.is_some() || peer.credit.envelopes() == 0 {
                return;
            }
            let Some(slot) = peer.held.first().get() else { return };
            let Some(state) = self.requests.at(slot) else { return };
            let len = state.total;
            let eager = state.flags & SYNCHRONOUS == 0 && len <= u64::from(peer.eager_body);
            let eager = eager && (peer.credit.units() != 0 || len == 0);
            let rail = peer.route.rail;
            // A message whose copy may fail is announced first. So the receiver learns of a failure.
            let eager = eager
                && (state.span.accelerator().is_none()
                    || (state.span.failures().is_none() && len <= self.accelerators_eager(rail)));
            let sent = self.try_first_links(to, |engine| {
                if len > COPIED
                    && let Some(buffer) = engine.expose(to, slot)
                {
                    engine.send_first(to, slot, false, Some(&buffer))
                } else if eager {
                    engine.send_eager(to, slot)
                } else {
                    engine.send_first(to, slot, false, None)
                }
            });
            if let Err(why) = sent {
                self.counters.busy = self.counters.busy.wrapping_add(1);
                if none_left
                    && why == SendError::Busy
                    && let Some(peer) = self.peers.get_mut(to as usize)
                {
                    peer.liveness.set(OUT_OF_ROOM);
                }
                return;
            }
            none_left = false;
        }
    }

    /// Bytes of the longest message from an accelerator's memory that the rail sends whole.
    #[cold]
    fn accelerators_eager(&self, rail: u8) -> u64 {
        self.rails.rail(rail.into()).map_or(0, |rail| rail.attributes().accelerator.eager_limit.into())
    }

    /// Sends a first fragment by the links of the lowest latency: by the one whose turn it is, or else by another one that has
    /// room. A link without room may be one that is not connected, possibly for long. If none has room, the turn does not change.
    pub(in crate::pml) fn try_first_links(
        &mut self,
        to: u32,
        mut send: impl FnMut(&mut Self) -> Result<(), SendError>,
    ) -> Result<(), SendError> {
        if !MULTIRAIL {
            return send(self);
        }
        let firsts = self.peers.get(to as usize).map_or(1, |peer| peer.route.firsts.max(1));
        for _ in 0..firsts {
            match send(self) {
                Err(SendError::Busy) => {}
                other => return other,
            }
            if let Some(peer) = self.peers.get_mut(to as usize) {
                advance_turn(peer, self.links, to, self.rails.count());
            }
        }
        Err(SendError::Busy)
    }
}
