//! Departures: this rank, or a peer, sends no more frames to the other by shared memory, or takes it for lost.
//!
//! A rank *leaves* a peer when there is no room for a ring to it. It says so in its control segment and rings the peer's doorbell, so
//! that the peer leaves it, too. Each of them reports that, and sends what follows by another rail. The frames that either has put
//! into a ring before stay there until the other has read them. If no other rail reaches the peer, the user of the rail takes the
//! peer for lost ([`GiveUp::Peer`](towline_core::rail::GiveUp::Peer)), and the peer is told that in the same way.

use towline_core::rail::Lost;

use super::peer::PeerStatus;
use super::ring_pair::EAGER;
use super::state::Rail;
use crate::doorbell;
use crate::error::OpenError;
use crate::segment::layout::{GIVEN_UP, LEFT};

impl Rail {
    /// Leaves a peer, because of an error that concerns the ring to it.
    pub(super) fn leave(&mut self, endpoint: u32, why: &OpenError) {
        let text = format!(
            "shared memory is used no more between ranks {} and {}: {why}",
            self.identity.card.rank,
            self.rank_of(endpoint)
        );
        log::warn!("{text}");
        self.warning.get_or_insert(text);
        if self.stop_sending(endpoint) {
            self.depart(endpoint, LEFT);
        }
    }

    /// The user of the rail takes a peer for lost.
    pub(super) fn give_up_peer(&mut self, endpoint: u32) {
        self.depart(endpoint, GIVEN_UP);
    }

    /// Follows the departure of a peer, if the peer has departed.
    pub(super) fn follow_departure(&mut self, endpoint: u32) {
        let Some(peer) = self.peers.get(endpoint as usize) else { return };
        let how = peer.control.as_ref().map_or(0, |control| control.departure(self.identity.card.rank));
        if how & GIVEN_UP != 0 {
            // For lack of room, unless the user of this rail has known of that, and went on by another rail.
            let no_room = match peer.status {
                PeerStatus::Left { reported } => !reported,
                _ => how & LEFT != 0,
            };
            self.fail(endpoint, if no_room { Lost::NoRoom } else { Lost::Broken });
        } else if how & LEFT != 0 {
            self.stop_sending(endpoint);
        }
    }

    /// Sends no more frames to a peer, and reports that with the next poll. Returns whether this is new.
    fn stop_sending(&mut self, endpoint: u32) -> bool {
        let Some(peer) = self.peers.get_mut(endpoint as usize) else { return false };
        if peer.status != PeerStatus::Connected {
            return false;
        }
        peer.status = PeerStatus::Left { reported: false };
        self.to_report += 1;
        self.close_outgoing(endpoint);
        (self.schedule.polls_left, self.schedule.turns_left) = (0, 0);
        true
    }

    /// Writes a departure from a peer into the control segment, and tells the peer to look.
    fn depart(&mut self, endpoint: u32, how: u64) {
        let Some(peer) = self.peers.get(endpoint as usize) else { return };
        let Some(control) = &peer.control else { return };
        self.control.depart(peer.rank, how);
        doorbell::ring(control.doorbell(), control.doorbell_bits(), self.identity.card.rank as usize * 2 + EAGER);
        self.wake(endpoint);
    }
}
