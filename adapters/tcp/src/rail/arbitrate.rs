//! The choice among several connections between two ranks. One connection is used; the direction in which it was made does not
//! matter.
//!
//! If both sides connect at the same time, the attempt of the lower rank is used. The lower rank lets the other's attempt wait,
//! in case its own fails; the higher rank accepts the lower rank's attempt and drops its own. Until the acceptor's verdict a
//! connection belongs to no peer, so its end is never the loss of a peer.

use towline_core::rail::Lost;

use crate::handshake::pending::Pending;
use crate::rail::Rail;
use crate::rail::peer::{Attempts, ConnState};
use crate::wire::hello::Verdict;

impl Rail {
    /// An authenticated peer has connected: decides whether its connection is used.
    pub(super) fn arbitrate(&mut self, slot: u32, rank: u32, instance: u64) {
        let own_rank = self.config.rank;
        let Some(endpoint) = self.peers.endpoint_of(rank) else { return }; // waits until the peer is added
        let Some(entry) = self.peers.get_mut(endpoint) else { return };
        if entry.instance != instance {
            return self.reject(slot, Verdict::Refused);
        }
        match &entry.state {
            ConnState::Unused | ConnState::Requested => self.accept_waiting(endpoint, slot),
            ConnState::Connecting(attempts) => match attempts.pending {
                None => self.accept_waiting(endpoint, slot),
                Some(_) if own_rank < rank => {} // this rank's attempt is used; the peer's waits in case it fails
                Some(own) => {
                    entry.state = ConnState::Connecting(Attempts { pending: None, ..*attempts });
                    self.counters.duplicates += 1;
                    drop(self.take_pending(own));
                    self.accept_waiting(endpoint, slot);
                }
            },
            ConnState::Connected(_) => self.reject(slot, Verdict::Duplicate),
            ConnState::Lost => self.reject(slot, Verdict::Refused),
        }
    }

    /// Accepts an authenticated inbound connection.
    pub(super) fn accept_waiting(&mut self, endpoint: u32, slot: u32) {
        let Some(mut pending) = self.take_pending(slot) else { return };
        let remote = pending.remote;
        self.awaiting_peer.retain(|it| *it != endpoint);
        if let Err(error) = pending.send_verdict(self.local_end(), Verdict::Accepted) {
            // It ended while it waited. If this rank has no attempt on the way, it needs one.
            log::info!("tcp link {}: caller {remote} closed the connection: {error}", self.config.link);
            self.counters.refused_silent += 1;
            if self.is_without_attempt(endpoint) {
                self.attempt(endpoint);
            }
            return;
        }
        let cipher = pending.take_cipher();
        self.establish(endpoint, pending.socket, remote, cipher);
        self.reject_others(endpoint);
    }

    /// Rejects the waiting connections of a peer that is connected or lost.
    fn reject_others(&mut self, endpoint: u32) {
        let Some(entry) = self.peers.get(endpoint) else { return };
        let rank = entry.rank;
        let connected = matches!(entry.state, ConnState::Connected(_));
        let verdict = if connected { Verdict::Duplicate } else { Verdict::Refused };
        while let Some(waiting) = self.waiting_from(rank) {
            self.reject(waiting, verdict);
        }
    }

    /// Rejects an authenticated inbound connection.
    pub(super) fn reject(&mut self, slot: u32, verdict: Verdict) {
        let Some(mut pending) = self.take_pending(slot) else { return };
        match verdict {
            Verdict::Duplicate => self.counters.duplicates += 1,
            _ => self.counters.refused_peer += 1,
        }
        // A caller that cannot be sent the verdict sees the end of the connection, which means the same.
        let _ = pending.send_verdict(self.local_end(), verdict);
    }

    /// The acceptor has decided about an attempt of this rank.
    pub(super) fn on_verdict(&mut self, slot: u32, verdict: Verdict) {
        let Some(mut pending) = self.take_pending(slot) else { return };
        let Some(target) = pending.target else { return };
        let endpoint = target.endpoint;
        match verdict {
            Verdict::Accepted => {
                let cipher = pending.take_cipher();
                self.establish(endpoint, pending.socket, pending.remote, cipher);
                self.reject_others(endpoint);
            }
            Verdict::Duplicate => {
                self.counters.duplicates += 1;
                let Some(entry) = self.peers.get_mut(endpoint) else { return };
                let ConnState::Connecting(attempts) = &mut entry.state else { return };
                attempts.pending = None;
                let deadline = attempts.deadline;
                self.awaiting_peer.push(endpoint);
                self.note_deadline(deadline);
                if let Some(waiting) = self.waiting_from(target.rank) {
                    self.accept_waiting(endpoint, waiting);
                }
            }
            Verdict::Refused => {
                log::error!(
                    "tcp: rank {} at {} refuses the connection: it has lost this rank, has not added it in time, \
                     or knows another process as this rank",
                    target.rank,
                    pending.remote
                );
                self.lose(endpoint, Lost::Broken);
            }
        }
    }

    /// A peer was added: decides about its connections that came before.
    pub(super) fn arbitrate_waiting(&mut self, endpoint: u32) {
        let Some(rank) = self.peers.rank_of(endpoint) else { return };
        while let Some(slot) = self.waiting_from(rank) {
            let Some((rank, instance)) = self.pendings[slot as usize].as_ref().and_then(Pending::authenticated) else {
                return;
            };
            self.arbitrate(slot, rank, instance);
        }
    }

    /// The slot of an authenticated inbound connection of a rank that waits for its verdict.
    pub(super) fn waiting_from(&self, rank: u32) -> Option<u32> {
        let is_from = |pending: &Pending| pending.authenticated().is_some_and(|(from, _)| from == rank);
        self.pendings.iter().position(|it| it.as_ref().is_some_and(is_from)).map(|at| at as u32)
    }
}
