//! Short messages for posted receives: the fast path.

use crate::pml::engine::Pml;
use crate::pml::matching::Key;
use crate::pml::rails::Rails;
use crate::pml::requests::state::Outcome;
use crate::ptl;
use crate::rail::{Peer, Short, ShortBody};

impl<R: Rails> Pml<'_, R> {
    /// Delivers a short message that is whole in its frame, in its turn, and has a posted receive. Returns `false` if anything is
    /// different: nothing was done then. The fastest case is a receive without wildcards that is the only entry of the matcher.
    #[inline(always)]
    pub(in crate::pml) fn deliver_short(&mut self, short: &Short) -> bool {
        let Some(header) = ptl::short_message(short.header) else { return false };
        let Some(peer) = self.peers.get_mut(short.from.0 as usize) else { return false };
        if header.sequence != peer.next_in || !peer.in_order {
            return false;
        }
        let key = Key { context: header.context, source: short.from.0, tag: header.tag };
        if let Some(slot) = self.matcher.only_match(&key)
            && let Some(state) = self.requests.in_use_mut(slot)
            && state.is_plain()
            && peer.granted.may_owe(self.credit_slack)
        {
            self.matcher.take_only();
            self.counters.expected = self.counters.expected.wrapping_add(1);
            // SAFETY: the caller of `irecv` guarantees that the sink is valid until the request is done; the rail was not called
            // since.
            unsafe { state.receive(short.from, header.tag, short.body) };
            state.succeed();
            peer.took_message(short.body.len() != 0);
            if header.credit != 0 {
                peer.gain(header.credit as u16, (header.credit >> 16) as u16);
                if !peer.held.is_empty() {
                    self.queue_work(short.from.0);
                }
            }
            return true;
        }
        let match_bits = u64::from(header.context) << 32 | u64::from(header.tag);
        self.deliver_matched(short.from, match_bits, header.credit, short.body)
    }

    /// As [`deliver_short`](Self::deliver_short), if the receive is not the only one, if it has other flags, or if a credit frame
    /// becomes due. `match_bits`: context and tag.
    #[inline(never)]
    fn deliver_matched(&mut self, from: Peer, match_bits: u64, credit: u32, body: ShortBody) -> bool {
        let key = Key { context: (match_bits >> 32) as u32, source: from.0, tag: match_bits as u32 };
        let Some(slot) = self.matcher.take_posted(&key) else { return false };
        let Some(state) = self.requests.in_use_mut(slot) else { return false };
        let Some(peer) = self.peers.get_mut(from.0 as usize) else { return false };
        self.counters.expected = self.counters.expected.wrapping_add(1);
        // SAFETY: as in `deliver_short`.
        unsafe { state.receive(from, key.tag, body) };
        peer.took_message(body.len() != 0);
        let mut work = peer.credit_comes_due(self.credit_slack);
        if credit != 0 {
            peer.gain(credit as u16, (credit >> 16) as u16);
            work |= !peer.held.is_empty();
        }
        if state.is_plain() {
            state.succeed();
        } else {
            self.complete(slot, Outcome::Success);
        }
        if work {
            self.queue_work(from.0);
        }
        true
    }
}
