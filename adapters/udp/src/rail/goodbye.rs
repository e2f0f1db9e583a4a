//! The end of a session: loss, goodbye, and the removal of a peer.
//!
//! A goodbye may be lost. So an end that goes on to send to an end which has removed it is sent the goodbye again. Otherwise it
//! could wait forever for a process that is there, and whose host answers for it.

use socket2::SockAddr;
use towline_core::rail::{Event, Lost};
use towline_core::time::Duration;

use crate::rail::Rail;
use crate::rail::peer::{ConnState, Goodbye, PeerEntry};
use crate::wire::datagram::{Content, PREFIX, SEALED, inner_prefix, prefix_start, sealed_prefix};

/// Shortest time between two repetitions of a goodbye.
const INTERVAL: Duration = Duration::from_millis(100);

impl Rail {
    /// Ends the session with a peer and reports the loss once.
    pub(super) fn lose(&mut self, endpoint: u32, why: Lost) {
        let Some(entry) = self.peers.get_mut(endpoint) else { return };
        if entry.state == ConnState::Lost {
            return;
        }
        entry.state = ConnState::Lost;
        let (peer, rank) = (entry.peer, entry.rank);
        if why == Lost::Closed {
            log::debug!("udp: rank {rank}: {why}");
        } else {
            log::warn!("udp: rank {rank} is lost: {why}");
        }
        self.counters.lost += 1;
        self.outbox.drop_endpoint(endpoint);
        self.stop_probe(endpoint);
        self.leave_lists(endpoint);
        self.events.push_back((endpoint, Event::Lost(peer, why)));
    }

    /// Takes an endpoint off all lists.
    pub(super) fn leave_lists(&mut self, endpoint: u32) {
        let Self { requested, connecting, renewing, closing, checked_ports, .. } = self;
        for list in [requested, connecting, renewing, closing, checked_ports] {
            list.retain(|it| *it != endpoint);
        }
        if self.granted.is_some_and(|ticket| ticket.endpoint.0 == endpoint) {
            self.granted = None;
        }
    }

    /// Removes a peer, with a goodbye or without.
    pub(super) fn remove(&mut self, endpoint: u32, goodbye: bool) {
        if self.peers.get(endpoint).is_none() {
            return;
        }
        if self.outbox.has(endpoint) {
            self.flush_outbox();
        }
        if goodbye && let Some(goodbye) = self.send_goodbye(endpoint) {
            self.remember_goodbye(endpoint, goodbye);
        }
        self.stop_probe(endpoint);
        self.outbox.drop_endpoint(endpoint);
        self.inbox.release_all(endpoint);
        self.leave_lists(endpoint);
        self.events.retain(|(of, _)| *of != endpoint);
        self.peers.remove(endpoint);
    }

    /// Sends a peer a goodbye, and returns it.
    fn send_goodbye(&mut self, endpoint: u32) -> Option<Goodbye> {
        let is_established = |entry: &&mut PeerEntry| entry.state == ConnState::Established;
        let entry = self.peers.get_mut(endpoint).filter(is_established)?;
        let (rank, remote, session) = (entry.rank, entry.remote.clone()?, entry.handshake.session_mut()?);
        let mut bytes = [0; PREFIX + SEALED];
        let mut len = PREFIX;
        if let Some(encryption) = &mut session.encryption {
            let number = encryption.next_number;
            bytes[..PREFIX].copy_from_slice(&sealed_prefix(session.index, number));
            len += encryption.cipher.seal_as(number, &inner_prefix(Content::Goodbye), &mut bytes[PREFIX..]);
            encryption.next_number += 1;
        } else {
            let start = prefix_start(Content::Goodbye, session.index);
            bytes[..start.len()].copy_from_slice(&start);
            bytes[start.len()..PREFIX].copy_from_slice(&session.outbound.proof(&start, &[]));
        }
        self.send_datagram(&bytes[..len], &remote);
        Some(Goodbye { rank, remote, bytes, len, sent: self.now })
    }

    /// Keeps the goodbye of a peer that is removed.
    fn remember_goodbye(&mut self, endpoint: u32, goodbye: Goodbye) {
        let at = endpoint as usize;
        if at >= self.goodbyes.len() {
            self.goodbyes.resize_with(at + 1, || None);
        }
        self.goodbyes[at] = Some(goodbye);
    }

    /// Drops the goodbyes of a rank that is added again.
    pub(super) fn forget_goodbyes(&mut self, rank: u32) {
        for goodbye in &mut self.goodbyes {
            goodbye.take_if(|goodbye| goodbye.rank == rank);
        }
    }

    /// A datagram of no known session has arrived for this endpoint: repeats the goodbye of the peer that had the endpoint.
    #[cold]
    pub(super) fn repeat_goodbye(&mut self, endpoint: u32) {
        let now = self.now;
        let goodbye = self.goodbyes.get_mut(endpoint as usize).and_then(Option::as_mut);
        let Some(goodbye) = goodbye.filter(|goodbye| now >= goodbye.sent + INTERVAL) else { return };
        goodbye.sent = now;
        let (bytes, len, remote) = (goodbye.bytes, goodbye.len, goodbye.remote.clone());
        self.send_datagram(&bytes[..len], &remote);
        self.counters.goodbyes_repeated += 1;
    }

    /// Sends a datagram before the frames that wait.
    pub(super) fn send_datagram(&mut self, bytes: &[u8], to: &SockAddr) {
        // The first call may return the error of an earlier datagram.
        for _ in 0..2 {
            match self.socket.send_to(bytes, to) {
                Err(why) if why.kind() != std::io::ErrorKind::WouldBlock => drop(self.handle_reports()),
                _ => return,
            }
        }
    }
}

impl Drop for Rail {
    fn drop(&mut self) {
        self.flush_outbox();
        for endpoint in 0..self.peers.endpoints() {
            self.send_goodbye(endpoint);
        }
    }
}
