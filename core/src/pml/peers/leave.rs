//! The loss or deletion of a peer: the end of its requests and messages.

use crate::pml::engine::Pml;
use crate::pml::peers::state::PeerStatus;
use crate::pml::rails::Rails;
use crate::pml::requests::errors::Refusal;
use crate::pml::requests::state::{ANSWERING, Outcome, Phase, RECEIVE};
use crate::pml::stall;
use crate::pml::unexpected::state::{EnvelopeStage, Unexpected};
use crate::rail::{Lost, Peer};
use crate::{rma, wire};

impl<R: Rails> Pml<'_, R> {
    /// Forgets a peer. Requests that name it end with [`Failure::PeerFailed`](crate::pml::Failure::PeerFailed), its messages are
    /// dropped, and the rails do not access the memory of these requests any more. The peer may be added again.
    pub fn del_peer(&mut self, peer: Peer) {
        self.forget_links(peer.0, false);
        self.end_one_sided(peer, rma::Failure::Removed);
        self.drop_peer(peer.0, true, Outcome::PeerFailed);
        if let Some(state) = self.peers.get_mut(peer.0 as usize) {
            state.status = PeerStatus::Unknown;
        }
    }

    /// Declares a peer lost, as if its rails had reported that, when the caller knows by other means that the peer failed. The
    /// peer need not have been added before.
    pub fn lose_peer(&mut self, peer: Peer, why: Lost) {
        // An unknown peer may be lost at once: no rail knows it, and no operation with it is in progress.
        if let Some(state) = self.peers.get_mut(peer.0 as usize).filter(|state| state.status == PeerStatus::Unknown) {
            state.status = PeerStatus::Up;
        }
        self.lost(peer, why);
    }

    /// Ends all that concerns a peer that is lost, and notes the reason. A peer that is not up is ignored.
    #[cold]
    pub(in crate::pml) fn lost(&mut self, peer: Peer, why: Lost) {
        let Some(state) = self.peers.get(peer.0 as usize) else { return };
        if state.status != PeerStatus::Up {
            return;
        }
        warn!("peer {} is lost: {}", peer.0, why as u8);
        self.counters.lost = self.counters.lost.wrapping_add(1);
        self.losses = self.losses.saturating_add(1);
        self.slow_receives = true;
        if stall::clock::ENABLED && why == Lost::Stalled {
            self.send_given_up(peer.0); // the peer still runs, and its rails may not report the end
        }
        self.forget_links(peer.0, why != Lost::Closed);
        self.end_one_sided(peer, rma::Failure::Lost);
        let outcome = if why == Lost::Closed { Outcome::PeerClosed } else { Outcome::PeerFailed };
        self.drop_peer(peer.0, false, outcome);
        if let Some(state) = self.peers.get_mut(peer.0 as usize) {
            state.set_lost(lost_code(why));
        }
        self.note_failed(peer);
    }

    /// Ends the requests with a peer and drops its messages. To be called when its rails do not access memory for it any more.
    /// Messages that are complete stay, unless `all`. `outcome`: that of the requests.
    pub(in crate::pml) fn drop_peer(&mut self, index: u32, all: bool, outcome: Outcome) {
        let all = all || !RECOVERY;
        self.end_arrivals(index);
        let Some(peer) = self.peers.get_mut(index as usize) else { return };
        let next_in = peer.next_in;
        *peer = peer.reset();
        self.drop_requests(index, all, outcome);
        self.drop_envelopes(index, next_in, all);
        self.run_refused(); // at once: after the peer is added again, these messages must not give it credit
        if let Some(peer) = self.peers.get_mut(index as usize) {
            peer.granted.owed = 0;
        }
    }

    /// Ends the requests with a peer. A message that a matched probe took stays, unless `all`: its receive reports the failure.
    fn drop_requests(&mut self, index: u32, all: bool, outcome: Outcome) {
        for slot in 0..self.requests.touched() {
            let Some(state) = self.requests.at_mut(slot) else { continue };
            // The device ends its operations itself.
            let is_elsewhere = matches!(state.phase, Phase::Done | Phase::Offloaded | Phase::OffloadedMessage);
            if state.peer != index || is_elsewhere {
                continue;
            }
            if state.phase == Phase::Taken {
                state.outcome = outcome;
                if (!RECOVERY || all)
                    && let Some(handle) = self.requests.handle(slot)
                {
                    self.requests.free(handle);
                }
                continue;
            }
            state.inflight = 0;
            let (phase, flags) = (state.phase, state.flags);
            if phase == Phase::Held || flags & ANSWERING != 0 {
                self.held_table.remove(slot);
            }
            if flags & RECEIVE != 0 && phase == Phase::Posted {
                self.matcher.unpost(slot);
            }
            self.deactivate(slot);
            self.release_piece(slot);
            self.complete(slot, outcome);
        }
    }

    /// Drops the messages of a peer that cannot be completed. Later messages must not take the place of these, so all messages
    /// after the first of them are dropped as well. `next_in`: the number of the peer's next message.
    fn drop_envelopes(&mut self, index: u32, next_in: u32, all: bool) {
        let age = |envelope: &Unexpected| next_in.wrapping_sub(envelope.sequence);
        let oldest_broken = if RECOVERY { self.age_of_broken(index, age) } else { 0 };
        for slot in 0..self.envelopes.touched() {
            let Some(envelope) = self.envelopes.at_mut(slot) else { continue };
            let filling = envelope.is_filling();
            let behind = envelope.stage == EnvelopeStage::Queued && age(envelope) < oldest_broken;
            let drop = !RECOVERY
                || all
                || filling
                || envelope.rendezvous
                || envelope.stage == EnvelopeStage::OutOfOrder
                || behind;
            if envelope.peer != index || !drop {
                continue;
            }
            envelope.filling = false;
            match envelope.stage {
                EnvelopeStage::Queued => {
                    self.matcher.remove_unexpected(slot);
                }
                // It stays in the list of refusals, which `drop_peer` runs next. There is no sender to be told any more.
                EnvelopeStage::Refused if !filling => {
                    envelope.rendezvous = false;
                    continue;
                }
                // A matched probe took the message: its receive reports the failure.
                EnvelopeStage::Taken | EnvelopeStage::Broken if RECOVERY && !all => {
                    envelope.stage = EnvelopeStage::Broken;
                    continue;
                }
                EnvelopeStage::OutOfOrder
                | EnvelopeStage::Claimed
                | EnvelopeStage::Taken
                | EnvelopeStage::Broken
                | EnvelopeStage::Refused => {}
            }
            if let Some(handle) = self.envelopes.handle(slot) {
                self.give_back(handle, true);
            }
        }
    }

    /// The age of a peer's oldest queued message that cannot be completed. 0 if there is none.
    fn age_of_broken(&self, index: u32, age: impl Fn(&Unexpected) -> u32) -> u32 {
        let queued = |envelope: &&Unexpected| envelope.peer == index && envelope.stage == EnvelopeStage::Queued;
        let broken = |envelope: &&Unexpected| {
            (envelope.is_filling() || envelope.rendezvous) && envelope.flags & wire::FLAG_ANSWER == 0
        };
        let envelopes = (0..self.envelopes.touched()).filter_map(|slot| self.envelopes.at(slot));
        envelopes.filter(queued).filter(broken).map(age).max().unwrap_or(0)
    }

    /// The outcome of an operation with a peer that is lost.
    pub(in crate::pml) fn outcome_of_lost(&self, peer: u32) -> Outcome {
        if self.why_lost(Peer(peer)) == Some(Lost::Closed) { Outcome::PeerClosed } else { Outcome::PeerFailed }
    }

    /// The refusal of an operation with a peer that is lost.
    #[cold]
    pub(in crate::pml) fn refusal_of_lost(&self, peer: Peer) -> Refusal {
        if self.why_lost(peer) == Some(Lost::Closed) { Refusal::PeerClosed(peer) } else { Refusal::PeerFailed(peer) }
    }

    /// Whether a peer was ever lost.
    pub(crate) const fn has_lost_any(&self) -> bool {
        self.losses != 0
    }

    /// The reason why a peer was lost. `None` if it was not lost.
    pub fn why_lost(&self, peer: Peer) -> Option<Lost> {
        let code = self.peers.get(peer.0 as usize)?.lost_code()?;
        Some(match code {
            1 => Lost::Closed,
            2 => Lost::TimedOut,
            3 => Lost::Misbehaved,
            4 => Lost::Stalled,
            5 => Lost::NoRoom,
            6 => Lost::DeviceFailed,
            _ => Lost::Broken,
        })
    }
}

/// Whether communicators know which members have failed, and keep what these have sent: the feature `recovery`.
pub(crate) const RECOVERY: bool = cfg!(feature = "recovery");

/// The code of a reason in [`PeerState::set_lost`](super::state::PeerState::set_lost).
const fn lost_code(why: Lost) -> u8 {
    match why {
        Lost::Broken => 0,
        Lost::Closed => 1,
        Lost::TimedOut => 2,
        Lost::Misbehaved => 3,
        Lost::Stalled => 4,
        Lost::NoRoom => 5,
        Lost::DeviceFailed => 6,
    }
}
