//! Looks at peers that something is waited for.

use crate::pml::engine::Pml;
use crate::pml::peers::state::PeerStatus;
use crate::pml::rails::Rails;
use crate::pml::requests::state::{Phase, RequestState};
use crate::pml::stall::clock::Stall;
use crate::pml::stall::liveness::{AWAITED, CHECKS, HEARD, KEEPALIVE_DUE, KEEPALIVE_REPLY_DUE};
use crate::rail::{Lost, Peer};
use crate::time::{Duration, Instant};
use crate::wire;

/// Rounds after which a look that is due takes place also if the rails are never idle: more than what may lie in them.
const MAX_ROUNDS: u32 = 1024;

impl<R: Rails> Pml<'_, R> {
    /// Has peers count as dead ([`Lost::Stalled`]) that something is waited for and that give no sign of life for so long:
    /// also those that are stopped, or that compute without making progress. A zero time, as at first, lets all wait for ever.
    ///
    /// It is noticed by [`progress`](Self::progress), within five quarters of the time, if that is called often enough.
    pub fn set_stall_timeout(&mut self, time: Duration) {
        self.stall = Stall { gap: time.as_nanos().div_ceil(CHECKS.into()), ..Stall::OFF };
        if self.stall.is_on() {
            self.stall.at = 0; // the next call tells the time
        }
    }

    /// When the next look is due.
    pub(in crate::pml) fn stall_at(&self) -> Option<Instant> {
        self.stall.is_on().then_some(Instant::from_nanos(self.stall.at))
    }

    /// A look is due, after a round in which the rails had nothing, or something. Tells how many peers were given up.
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
        let before = self.counters.lost;
        let anyone = self.mark_awaited();
        for index in 0..self.peers.len() as u32 {
            self.check_peer(index, anyone);
        }
        self.counters.lost.wrapping_sub(before) as u32
    }

    /// Marks the peers that requests wait for. Tells whether one waits for anybody.
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

    fn check_peer(&mut self, index: u32, anyone: bool) {
        let Some(peer) = self.peers.get(index as usize).filter(|peer| peer.status == PeerStatus::Up) else { return };
        let met = peer.frame_out != 0 || self.has_connected_one_sided(index);
        // Where no rail is in use nothing can come, and it is not the peer's fault.
        let wanted = peer.liveness.has(AWAITED) || (anyone && met) || !self.drained(index);
        let awaited = peer.route.links != 0 && wanted;
        let told = awaited && self.control_by_all(index, keepalive());
        let Some(peer) = self.peers.get_mut(index as usize) else { return };
        peer.liveness.clear(KEEPALIVE_DUE);
        // Where nothing could ever leave, the connection is still being made; where it could and cannot now, nothing is taken, or
        // others have the room just now: the keepalive is tried again until the next look.
        let asked = told || (awaited && met);
        let again = asked && !told;
        if again {
            peer.liveness.set(KEEPALIVE_DUE);
        }
        // The quick way leaves no other mark. Of 256 messages exactly between two looks nothing is seen, four times in a row.
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

    /// Answers a peer that asked, and asks one for whom there was no room when it was looked.
    pub(in crate::pml) fn send_keepalives(&mut self, index: u32) {
        for (mark, word) in [(KEEPALIVE_REPLY_DUE, wire::Credit::new()), (KEEPALIVE_DUE, keepalive())] {
            if self.peers.get(index as usize).is_some_and(|peer| peer.liveness.has(mark))
                && self.control_by_all(index, word)
                && let Some(peer) = self.peers.get_mut(index as usize)
            {
                peer.liveness.clear(mark);
            }
        }
    }

    /// Sends a control frame by all links in use, of which any may be dead. Whether one of them took it.
    fn control_by_all(&mut self, index: u32, credit: wire::Credit) -> bool {
        let links = self.peers.get(index as usize).map_or(0, |peer| peer.route.links);
        let mut told = false;
        for place in 0..usize::from(links) {
            told |= self.control_by(index, place, credit).is_ok();
        }
        told
    }

    /// Tells a peer that it is given up, if its rails have room for that.
    pub(in crate::pml) fn send_given_up(&mut self, index: u32) {
        let mut word = wire::Credit::new();
        word.common.flags = wire::FLAG_MARK | wire::FLAG_ANSWER;
        self.control_by_all(index, word);
    }

    /// A peer asks whether this engine makes progress.
    pub(in crate::pml) fn on_keepalive(&mut self, from: u32) {
        let Some(peer) = self.peers.get_mut(from as usize).filter(|peer| peer.status == PeerStatus::Up) else { return };
        peer.liveness.set(KEEPALIVE_REPLY_DUE);
        self.queue_work(from);
    }
}

/// Asks for a sign of life.
const fn keepalive() -> wire::Credit {
    let mut keepalive = wire::Credit::new();
    keepalive.common.flags = wire::FLAG_MARK;
    keepalive
}

/// Whether a request is not over before its peer has done something.
pub(in crate::pml) const fn waits(state: &RequestState) -> bool {
    !matches!(state.phase, Phase::Done | Phase::Taken)
}
