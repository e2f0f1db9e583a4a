//! The receiver's side: probes for messages that peers hold back.

use crate::pml::engine::Pml;
use crate::pml::matching::{ANY, Pattern};
use crate::pml::peers::flags::{ASKING_PROBE, HOLDING, PROBE};
use crate::pml::rails::Rails;
use crate::pml::unexpected::state::{NARROW, SEEN, Unexpected};

/// Whether probes find messages that their senders hold back: the feature `probes`. Code behind this constant is for that.
pub(in crate::pml) const PROBES: bool = cfg!(feature = "probes");

/// After this many probes without a result, of any pattern, an answer that is kept for a probe may be sent back.
const MAX_MISSED_PROBES: u32 = 256;

impl<R: Rails> Pml<'_, R> {
    /// The first of the arrived messages that a pattern accepts. If that is an answer for one tag and the pattern accepts any
    /// tag, the answer is sent back, since the peer may hold back an earlier message with another tag.
    #[inline]
    pub(in crate::pml) fn find_unexpected(&mut self, pattern: &Pattern) -> Option<u32> {
        loop {
            let slot = self.matcher.find_unexpected(pattern)?;
            let narrow = |envelope: &Unexpected| envelope.flags & NARROW != 0;
            if !PROBES || pattern.tag != ANY || !self.envelopes.at(slot).is_some_and(narrow) {
                return Some(slot);
            }
            self.evict(slot);
        }
    }

    /// Whether an answer that is kept for a probe may be sent back in favour of another probe: a probe has found the answer, or
    /// the program does not seem to probe for it any more. A program that probes for several messages in turn gets time to repeat
    /// the first probe.
    pub(in crate::pml) fn may_evict(&self, slot: u32) -> bool {
        self.envelopes.at(slot).is_none_or(|envelope| {
            envelope.flags & SEEN != 0 || self.missed_probes.wrapping_sub(envelope.sequence) >= MAX_MISSED_PROBES
        })
    }

    /// Handles a probe that found nothing: peers that hold messages back are to be asked for its message.
    pub(in crate::pml) fn want_probe(&mut self, pattern: Pattern) {
        if !PROBES {
            return;
        }
        self.missed_probes = self.missed_probes.wrapping_add(1);
        if let Some(peer) = self.peers.get(pattern.source as usize) {
            if peer.has(HOLDING) {
                self.want_probe_of(pattern.source, pattern);
            }
        } else {
            // Any source: peers that hold messages back are always in the work list.
            let mut next = self.work.first();
            while let Some(index) = next.get() {
                let Some(peer) = self.peers.get(index as usize) else { return };
                next = peer.work_next;
                if peer.has(HOLDING) {
                    self.want_probe_of(index, pattern);
                }
            }
        }
    }

    /// Notes that a peer is to be asked for a probe. Of all probes since the last ask one is drawn at random: with any fixed
    /// order, one of a program's probes might never have its turn.
    fn want_probe_of(&mut self, from: u32, pattern: Pattern) {
        let mut lot = (u64::from(self.missed_probes) ^ self.config.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        lot = (lot ^ lot >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let Some(peer) = self.peers.get_mut(from as usize) else { return };
        let same = (peer.asks.probe_context, peer.asks.probe_tag) == (pattern.context, pattern.tag);
        if same && !peer.has(PROBE) && (peer.asks.empty_asks != 0 || peer.has(ASKING_PROBE)) {
            return; // the ask for this probe is out, or found nothing and no notice came since
        }
        peer.asks.probes = peer.asks.probes.saturating_add(1);
        if !peer.has(PROBE) || (lot >> 32).checked_rem(peer.asks.probes.into()) == Some(0) {
            peer.set(PROBE);
            peer.asks.probe_context = pattern.context;
            peer.asks.probe_tag = pattern.tag;
        }
    }

    /// Lets all kept answers be sent back: the caller is about to sleep, so no probe can find them.
    pub(in crate::pml) fn expire_probes(&mut self) {
        self.missed_probes = self.missed_probes.wrapping_add(MAX_MISSED_PROBES);
    }
}
