//! The sender's side: notices that messages are held back, and answers to the peer's asks.

use crate::list::{List, OptSlot};
use crate::pml::engine::Pml;
use crate::pml::matching::{Key, Pattern};
use crate::pml::peers::flags::{ANNOUNCED, ASK_EMPTY, ASKED, ASKED_PROBE};
use crate::pml::rails::Rails;
use crate::pml::requests::state::{ANSWERING, Phase, RequestState};
use crate::wire;

impl<R: Rails> Pml<'_, R> {
    /// Sends a notice that messages are held back, once. Messages that wait only for an answer to be settled are included: the
    /// answer may not be settled before the peer has received one of them, for which it must know of them.
    pub(in crate::pml) fn send_held_notice(&mut self, index: u32) {
        let Some(peer) = self.peers.get(index as usize) else { return };
        if peer.held.is_empty() || peer.may_send_held() || peer.has(ANNOUNCED) {
            return;
        }
        let notice = peer.credit.notice_out.wrapping_add(1);
        if self.control(index, wire::Held::new(notice.into())).is_ok()
            && let Some(peer) = self.peers.get_mut(index as usize)
        {
            peer.credit.notice_out = notice;
            peer.set(ANNOUNCED);
            self.counters.notices_sent = self.counters.notices_sent.wrapping_add(1);
        }
    }

    /// Answers the peer's ask, if there is one: with the first held-back message that it accepts, or with the reply that there is
    /// none.
    pub(in crate::pml) fn answer_ask(&mut self, index: u32) {
        let Some(peer) = self.peers.get(index as usize) else { return };
        if !peer.has(ASKED) || peer.asked.answering.is_some() {
            return;
        }
        let pattern = Pattern { context: peer.asked.context, source: index, tag: peer.asked.tag };
        if let Some(slot) = self.first_held(index, &pattern) {
            if self.try_first_links(index, |engine| engine.send_first(index, slot, true, None)).is_ok()
                && let Some(peer) = self.peers.get_mut(index as usize)
            {
                peer.clear(ASKED | ASKED_PROBE);
            }
            return;
        }
        let Some(peer) = self.peers.get(index as usize) else { return };
        let mut header = wire::Nothing::new(peer.credit.notice_out.into());
        if peer.held.is_empty() {
            header.common.flags = wire::FLAG_NONE_HELD;
        }
        if self.control(index, header).is_ok()
            && let Some(peer) = self.peers.get_mut(index as usize)
        {
            peer.clear(ASKED | ASKED_PROBE);
            peer.set(ASK_EMPTY);
            self.counters.nothings_sent = self.counters.nothings_sent.wrapping_add(1);
        }
    }

    /// The first held-back send to a peer that an ask accepts. No answer is out, so none of these sends has left.
    fn first_held(&mut self, to: u32, pattern: &Pattern) -> Option<u32> {
        let mut steps = 0u32;
        let found = if self.held_table.is_used() {
            self.held_table.find(pattern, &mut steps)
        } else {
            let mut at = self.peers.get(to as usize).map_or(OptSlot::NONE, |peer| peer.held.first());
            let accepts =
                |state: &RequestState| pattern.accepts(&Key { context: state.context, source: to, tag: state.tag });
            while let Some(slot) = at.get()
                && !self.requests.at(slot).is_some_and(accepts)
            {
                steps = steps.wrapping_add(1);
                at = List::after(&self.requests, slot);
            }
            at.get()
        };
        self.counters.answer_steps = self.counters.answer_steps.wrapping_add(steps.into());
        found
    }

    /// Handles the ask of a peer for a message that is held back here.
    pub(in crate::pml) fn on_asked(&mut self, from: u32, header: wire::Ask) {
        let Some(peer) = self.peers.get_mut(from as usize) else { return };
        peer.asked.context = header.context.get();
        peer.asked.tag = header.tag.get();
        peer.set(ASKED);
        self.queue_work(from);
    }

    /// Handles that an answer of ours was `taken`, or was rejected and is held back again. Other sends are ignored.
    pub(in crate::pml) fn settle_answer(&mut self, slot: u32, taken: bool) {
        let Some(state) = self.requests.at_mut(slot) else { return };
        if state.flags & ANSWERING == 0 {
            return;
        }
        state.flags &= !ANSWERING;
        let to = state.peer;
        if !taken {
            state.phase = Phase::Held;
            state.moved = 0;
        }
        let Some(peer) = self.peers.get_mut(to as usize) else { return };
        peer.asked.answering = OptSlot::NONE;
        if taken {
            peer.release_held(&mut self.requests, &mut self.held_table, slot);
        } else {
            self.forget_early_offer(slot);
        }
        self.queue_work(to);
    }
}
