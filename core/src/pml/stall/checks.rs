//! Checks whether awaited peers make progress.

use crate::pml::engine::Pml;
use crate::pml::peers::state::PeerStatus;
use crate::pml::rails::Rails;
use crate::pml::requests::state::{Phase, RequestState};
use crate::pml::stall::clock::{ENABLED, StallClock};
use crate::pml::stall::liveness::{AWAITED, CHECKS, HEARD, KEEPALIVE_DUE, KEEPALIVE_REPLY_DUE};
use crate::rail::{Lost, MULTIRAIL, Peer};
use crate::time::{Duration, Instant};
use crate::wire;

/// A check that is due takes place after this many rounds even if the rails are never idle. Rails hold fewer waiting frames than
/// this, so the rounds have delivered all frames that waited when the check became due.
const MAX_ROUNDS: u32 = 1024;

impl<R: Rails> Pml<'_, R> {
    /// Sets the stall time-out: an awaited peer that sends no answer for this time is lost ([`Lost::Stalled`]). That includes
    /// peers that are stopped, or that compute without making progress. 0 means no time-out, as after set-up. Without the core's
    /// feature `stall` there is never one.
    ///
    /// [`progress`](Self::progress) detects a stall within five quarters of the time, if it is called often enough.
    pub fn set_stall_timeout(&mut self, time: Duration) {
        self.stall = StallClock { gap: time.as_nanos().div_ceil(CHECKS.into()), ..StallClock::OFF };
        if self.stall.is_on() {
            self.stall.at = 0; // the next call to `progress` brings the time
        }
    }

    /// The time of the next check. `None` without a time-out.
    pub(in crate::pml) fn stall_at(&self) -> Option<Instant> {
        self.stall.is_on().then_some(Instant::from_nanos(self.stall.at))
    }

    /// Checks all peers, since a check is due. `nothing`: the rails had no event in this round. Returns how many peers were given
    /// up.
    #[cold]
    #[inline(never)]
    pub(in crate::pml) fn check_stalled(&mut self, now: Instant, nothing: bool) -> u32 {
        let first = self.stall.at == 0;
        self.stall.rounds = self.stall.rounds.saturating_add(1);
        if !first && self.stall.rounds < MAX_ROUNDS && !(nothing && self.arm_rails()) {
            return 0;
        }
        (self.stall.at, self.stall.rounds) = (now.as_nanos().saturating_add(self.stall.gap), 0);
        if first {
            return 0;
        }
        let before = self.losses;
        let anyone = self.mark_awaited();
        for index in 0..self.peers.len() as u32 {
            self.check_peer(index, anyone);
        }
        self.losses.saturating_sub(before)
    }

    /// Marks the peers that requests wait for. Returns whether a request waits for any peer.
    fn mark_awaited(&mut self) -> bool {
        self.peers.iter_mut().for_each(|state| state.liveness.clear(AWAITED));
        let mut anyone = false;
        for slot in 0..self.requests.touched() {
            let Some(state) = self.requests.at(slot).filter(|state| waits(state)) else { continue };
            match self.peers.get_mut(state.peer as usize) {
                Some(peer) => peer.liveness.set(AWAITED),
                None => anyone = true,
            }
        }
        for index in 0..self.peers.len() as u32 {
            if self.awaits_one_sided(index)
                && let Some(peer) = self.peers.get_mut(index as usize)
            {
                peer.liveness.set(AWAITED);
            }
        }
        anyone
    }

    /// Checks one peer, and sends it a keepalive if it is awaited. `anyone`: a request waits for any peer.
    fn check_peer(&mut self, index: u32, anyone: bool) {
        let Some(peer) = self.peers.get(index as usize).filter(|peer| peer.status == PeerStatus::Up) else { return };
        let connected = peer.frame_out != 0 || self.has_connected_one_sided(index);
        // If no link is in use, nothing can arrive, which is not the peer's fault.
        let wanted = peer.liveness.has(AWAITED) || (anyone && connected) || !self.drained(index);
        let awaited = peer.route.links != 0 && wanted;
        let sent = awaited && self.control_by_all(index, keepalive());
        let Some(peer) = self.peers.get_mut(index as usize) else { return };
        peer.liveness.clear(KEEPALIVE_DUE);
        // If no frame has ever left, the connection is still being made, and the check does not count. If frames have left before
        // and the keepalive finds no room now, the peer takes nothing, or other frames use the room. Then the keepalive is tried
        // again until the next check.
        let asked = sent || (awaited && connected);
        let again = asked && !sent;
        if again {
            peer.liveness.set(KEEPALIVE_DUE);
        }
        // The fast path leaves no other mark. If a multiple of 256 messages comes between two checks, this check sees none of
        // them. That hardly happens at four checks in a row.
        let next_in = peer.next_in as u8;
        if core::mem::replace(&mut peer.seen_in, next_in) != next_in {
            peer.liveness.set(HEARD);
        }
        peer.liveness.note_check(asked);
        if peer.liveness.silent() >= CHECKS {
            self.lost(Peer(index), Lost::Stalled);
        } else if again {
            self.queue_work(index);
        }
    }

    /// Answers a peer's keepalive, and sends one that found no room at the check.
    pub(in crate::pml) fn send_keepalives(&mut self, index: u32) {
        for (mark, word) in [(KEEPALIVE_REPLY_DUE, wire::Credit::new()), (KEEPALIVE_DUE, keepalive())] {
            if (ENABLED || mark == KEEPALIVE_REPLY_DUE)
                && self.peers.get(index as usize).is_some_and(|peer| peer.liveness.has(mark))
                && self.control_by_all(index, word)
                && let Some(peer) = self.peers.get_mut(index as usize)
            {
                peer.liveness.clear(mark);
            }
        }
    }

    /// Sends a control frame by all links in use, since any of them may have failed. Returns whether a link took it.
    fn control_by_all(&mut self, index: u32, credit: wire::Credit) -> bool {
        if !MULTIRAIL {
            return self.control_by(index, 0, credit).is_ok();
        }
        let links = self.peers.get(index as usize).map_or(0, |peer| peer.route.links);
        let mut sent = false;
        for place in 0..usize::from(links) {
            sent |= self.control_by(index, place, credit).is_ok();
        }
        sent
    }

    /// Tells a peer that it is given up, if its rails have room for that.
    pub(in crate::pml) fn send_given_up(&mut self, index: u32) {
        let mut word = wire::Credit::new();
        word.common.flags = wire::FLAG_KEEPALIVE | wire::FLAG_ANSWER;
        self.control_by_all(index, word);
    }

    /// Handles a keepalive of a peer.
    pub(in crate::pml) fn on_keepalive(&mut self, from: u32) {
        let Some(peer) = self.peers.get_mut(from as usize).filter(|peer| peer.status == PeerStatus::Up) else { return };
        peer.liveness.set(KEEPALIVE_REPLY_DUE);
        self.queue_work(from);
    }
}

/// A credit frame that the peer has to answer.
const fn keepalive() -> wire::Credit {
    let mut keepalive = wire::Credit::new();
    keepalive.common.flags = wire::FLAG_KEEPALIVE;
    keepalive
}

/// Whether a request waits for the engine of its peer.
pub(in crate::pml) const fn waits(state: &RequestState) -> bool {
    !matches!(state.phase, Phase::Done | Phase::Taken | Phase::Offloaded | Phase::OffloadedMessage)
}
