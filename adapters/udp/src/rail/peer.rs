//! The state of a peer.

use std::net::SocketAddr;

use socket2::SockAddr;
use towline_core::rail::Peer;
use towline_core::time::Instant;
use towline_net::PeerTable;

use crate::probes::closed_port::ClosedPortCheck;
use crate::probes::host::CLOSED_PORT;
use crate::session::handshake::SessionHandshake;
use crate::wire::datagram::{PREFIX, SEALED};

/// A peer of the rail.
#[derive(Debug)]
pub(crate) struct PeerEntry {
    pub(crate) peer: Peer,
    pub(crate) rank: u32,
    /// Its addresses to try, best first.
    pub(crate) candidates: Vec<SocketAddr>,
    /// The candidates whose port is closed: a bit for each.
    pub(crate) closed: u32,
    pub(crate) handshake: SessionHandshake,
    /// The address of its latest session.
    pub(crate) remote: Option<SockAddr>,
    pub(crate) state: ConnState,
    /// The hellos of a new session beside the present one.
    pub(crate) renewal: Option<Retry>,
    /// When a hello from an address that is not the peer's was last answered, while there is a session.
    pub(crate) answered_foreign: Option<Instant>,
    /// Its address belongs to a forwarder.
    pub(crate) forwarded: bool,
    /// Its port was reported closed, which is being checked.
    pub(crate) port_check: Option<ClosedPortCheck>,
}

/// The state of the connection to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConnState {
    /// The peer was not used yet.
    Unused,
    /// Hellos are sent until the peer answers.
    Connecting(Retry),
    /// Frames can be sent and received.
    Established,
    /// The peer's port is closed: it is lost once the datagrams that it sent before are handled.
    Closing,
    /// The peer was lost, and there will be no other session.
    Lost,
}

/// Hellos that are repeated until they are answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Retry {
    /// How many were sent.
    pub(crate) sent: u32,
    /// When the next one is due.
    pub(crate) next: Instant,
    /// The deadline of all of them.
    pub(crate) deadline: Instant,
}

impl PeerEntry {
    /// An authenticated datagram of the peer has arrived.
    #[inline]
    pub(crate) fn authenticated(&mut self) {
        if let Some(check) = &mut self.port_check {
            check.refute();
            if self.state == ConnState::Closing {
                self.state = ConnState::Established;
            }
        }
    }

    /// Where its host is probed.
    pub(crate) fn host(&self) -> Option<SocketAddr> {
        let mut at = self.remote.as_ref()?.as_socket()?;
        at.set_port(CLOSED_PORT);
        Some(at)
    }
}

/// The goodbye of a session whose peer was removed. It stays valid as long as the peer is not added again, however often it is
/// repeated.
#[derive(Debug)]
pub(crate) struct Goodbye {
    pub(crate) rank: u32,
    pub(crate) remote: SockAddr,
    pub(crate) bytes: [u8; PREFIX + SEALED],
    pub(crate) len: usize,
    /// When it was sent last.
    pub(crate) sent: Instant,
}

/// The address to which frames of an endpoint are sent.
#[inline]
pub(crate) fn remote_of(peers: &PeerTable<PeerEntry>, endpoint: u32) -> Option<&SockAddr> {
    peers.get(endpoint).filter(|entry| entry.state == ConnState::Established)?.remote.as_ref()
}
