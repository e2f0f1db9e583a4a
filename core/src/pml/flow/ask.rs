//! The receiver's side: our asks for messages that peers hold back.

use crate::pml::engine::Pml;
use crate::pml::flow::probe::PROBES;
use crate::pml::matching::{ANY, Pattern};
use crate::pml::peers::flags::{ASKING, ASKING_PROBE, ASKING_WIDE, HOLDING, PROBE, REJECT_DUE};
use crate::pml::rails::Rails;
use crate::wire;

impl<R: Rails> Pml<'_, R> {
    /// Sends the next ask to a peer that holds messages back: for a posted receive, or else for a probe.
    pub(in crate::pml) fn ask(&mut self, from: u32) {
        let Some(peer) = self.peers.get(from as usize) else { return };
        if !peer.has(HOLDING) || peer.has(ASKING | REJECT_DUE) {
            return;
        }
        let (cursor, last) = (peer.asks.cursor, self.next_posting.wrapping_sub(1));
        if cursor < last {
            if let Some((posting, pattern)) = self.posted_after(from, cursor) {
                return self.ask_for(from, pattern, Some(posting));
            }
            if let Some(peer) = self.peers.get_mut(from as usize) {
                peer.asks.cursor = last;
            }
        }
        let Some(peer) = self.peers.get(from as usize) else { return };
        if PROBES && peer.may_ask_for_probe() {
            let pattern = Pattern { context: peer.asks.probe_context, source: from, tag: peer.asks.probe_tag };
            self.ask_for(from, pattern, None);
        }
    }

    /// The first receive with a posting number above `after` that a peer could satisfy.
    fn posted_after(&mut self, from: u32, after: u64) -> Option<(u64, Pattern)> {
        let requests = &mut self.requests;
        let mut steps = 0;
        if !self.posting_order.kept {
            steps = self.posting_order.make(requests);
            self.slow_receives = true;
        }
        let (of_peer, looked) = self.posting_order.next(requests, from, after);
        let (of_any, more) = self.posting_order.next(requests, ANY, after);
        steps = steps.wrapping_add(looked).wrapping_add(more);
        self.counters.ask_steps = self.counters.ask_steps.wrapping_add(steps);
        let found = [of_peer, of_any].into_iter().flatten().filter_map(|slot| requests.at(slot));
        let first = found.min_by_key(|state| state.remote)?;
        Some((first.remote.as_posting(), Pattern { context: first.context, source: first.peer, tag: first.tag }))
    }

    /// Sends an ask for the posted receive with the number `receive`, or for a probe if that is `None`.
    fn ask_for(&mut self, from: u32, pattern: Pattern, receive: Option<u64>) {
        if PROBES
            && let Some(peer) = self.peers.get(from as usize)
            && let Some(slot) = peer.asks.kept_answer.get()
        {
            // Only one answer is out at a time. So the answer that was kept for a probe goes back first.
            if receive.is_some() || self.may_evict(slot) {
                self.evict(slot);
            }
            return;
        }
        let mut header = wire::Ask::new(pattern.context, pattern.tag);
        if receive.is_none() {
            header.common.flags = wire::FLAG_PROBE;
        }
        if self.control(from, header).is_err() {
            return;
        }
        self.counters.asks_sent = self.counters.asks_sent.wrapping_add(1);
        let Some(peer) = self.peers.get_mut(from as usize) else { return };
        peer.set(ASKING);
        if pattern.tag == ANY {
            peer.set(ASKING_WIDE);
        }
        match receive {
            Some(posting) => {
                peer.asks.cursor = posting;
                peer.clear(ASKING_PROBE);
            }
            None => {
                peer.set(ASKING_PROBE);
                peer.clear(PROBE);
                peer.asks.probes = 0;
            }
        }
    }

    /// Handles the notice of a peer that it holds messages back: all receives are asked for again.
    pub(in crate::pml) fn on_held(&mut self, from: u32, header: wire::Held) {
        let Some(peer) = self.peers.get_mut(from as usize) else { return };
        let notice = header.notice.get() as u16;
        if notice.wrapping_sub(peer.asks.notice_in) as i16 <= 0 {
            return; // an older notice, which the last one has overtaken
        }
        peer.asks.notice_in = notice;
        peer.set(HOLDING);
        (peer.asks.cursor, peer.asks.empty_asks) = (0, 0);
        self.queue_work(from);
    }

    /// Handles the reply of a peer that it has no message for our ask.
    pub(in crate::pml) fn on_nothing(&mut self, from: u32, header: wire::Nothing) {
        let Some(peer) = self.peers.get_mut(from as usize) else { return };
        if !peer.has(ASKING) {
            self.counters.stale = self.counters.stale.wrapping_add(1);
            return;
        }
        if PROBES && peer.has(ASKING_PROBE) {
            peer.asks.empty_asks = peer.asks.empty_asks.saturating_add(1);
        }
        peer.clear(ASKING | ASKING_PROBE | ASKING_WIDE);
        if header.notice.get() as u16 != peer.asks.notice_in {
            // The peer has held back more messages since its last notice here. The one that was asked for may be among them.
            (peer.asks.cursor, peer.asks.empty_asks) = (0, 0);
        } else if header.common.flags & wire::FLAG_NONE_HELD != 0 {
            peer.clear(HOLDING);
        }
        self.queue_work(from);
    }
}
