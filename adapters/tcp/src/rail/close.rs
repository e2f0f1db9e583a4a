//! The end of a connection: loss, goodbye, and the removal of a peer.

use std::os::fd::AsRawFd;

use towline_core::rail::{Event, Lost};

use crate::rail::Rail;
use crate::rail::peer::{Attempts, ConnState};
use crate::system::socket::{self as sys, Transfer};
use crate::wire::framing::GOODBYE;

impl Rail {
    /// Ends the connection to a peer and reports the loss once.
    pub(super) fn lose(&mut self, endpoint: u32, why: Lost) {
        let Some(entry) = self.peers.get_mut(endpoint) else { return };
        if matches!(entry.state, ConnState::Lost) {
            return;
        }
        let (peer, rank) = (entry.peer, entry.rank);
        match &entry.state {
            ConnState::Connected(connection) if why == Lost::Closed => {
                log::debug!("tcp: rank {rank} at {}: {why}", connection.remote);
            }
            ConnState::Connected(connection) => log::error!("tcp: rank {rank} at {} is lost: {why}", connection.remote),
            _ => log::error!("tcp: rank {rank} cannot be reached: {why}"),
        }
        self.disconnect(endpoint);
        self.counters.lost += 1;
        self.events.push_back((endpoint, Event::Lost(peer, why)));
    }

    /// Closes the connection to a peer and all attempts. The rail does not access the memory of the peer's frames after this.
    pub(super) fn disconnect(&mut self, endpoint: u32) {
        let Some(entry) = self.peers.get_mut(endpoint) else { return };
        (entry.ready, entry.sending) = (false, false);
        match std::mem::replace(&mut entry.state, ConnState::Lost) {
            ConnState::Connected(mut connection) => {
                self.connected -= 1;
                self.pipe.forget(connection.token);
                connection.outbox.abandon(&mut self.buffers);
            }
            ConnState::Connecting(Attempts { pending: Some(pending), .. }) => drop(self.take_pending(pending)),
            _ => {}
        }
        self.ready.retain(|it| *it != endpoint);
        self.sending.retain(|it| *it != endpoint);
        self.recent.retain(|it| *it != endpoint);
        self.awaiting_peer.retain(|it| *it != endpoint);
        self.awaiting_descriptor.retain(|it| *it != endpoint);
        if self.held == Some(endpoint) {
            self.held = None;
        }
        if self.granted.is_some_and(|granted| granted.ticket.endpoint.0 == endpoint) {
            self.granted = None;
        }
    }

    /// Removes a peer.
    pub(super) fn remove(&mut self, endpoint: u32) {
        self.disconnect(endpoint);
        self.events.retain(|(of, _)| *of != endpoint);
        self.requested.retain(|it| *it != endpoint);
        self.peers.remove(endpoint);
    }

    /// Sends a goodbye, so that the peer does not take the end of the connection for a failure, and shuts the connection down.
    pub(super) fn send_goodbye(&mut self, endpoint: u32) {
        let Some(connection) = self.connection(endpoint) else { return };
        let (mut channel, _, outbox) = connection.parts();
        if outbox.is_empty() && outbox.at_boundary() {
            // SAFETY: the goodbye is a constant.
            let _ = unsafe { channel.send(GOODBYE.as_ptr(), GOODBYE.len()) };
            if channel.has_unsent_record() {
                // SAFETY: there are no pieces.
                let _ = unsafe { channel.send_pieces(&mut []) };
            }
        }
        self.shut_down(endpoint);
    }

    /// Shuts a connection down, so that all sent bytes arrive. Without a goodbye, the peer takes this for a failure.
    pub(super) fn shut_down(&mut self, endpoint: u32) {
        let Some(connection) = self.connection(endpoint) else { return };
        let socket = connection.socket.as_raw_fd();
        let _ = connection.socket.shutdown(std::net::Shutdown::Write);
        // If bytes were unread at the close, the kernel would send a reset, which could overtake the sent bytes.
        let mut unread = [0; 4096];
        for _ in 0..256 {
            // SAFETY: the buffer is writable.
            let received = unsafe { sys::receive(socket, unread.as_mut_ptr(), unread.len()) };
            let Transfer::Bytes(_) = received else { break };
        }
    }
}

impl Rail {
    /// Makes the end of this rail a failure for its peers. What was sent arrives before.
    pub fn end_as_failure(&mut self) {
        self.fails_at_end = true;
    }
}

impl Drop for Rail {
    fn drop(&mut self) {
        // A thread that panics has not ended normally: peers are to take the end for a failure.
        if std::thread::panicking() {
            return;
        }
        for endpoint in 0..self.peers.endpoints() {
            if self.fails_at_end { self.shut_down(endpoint) } else { self.send_goodbye(endpoint) }
        }
    }
}
