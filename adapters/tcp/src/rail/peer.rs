//! The state of a peer.

use std::net::SocketAddr;

use towline_core::rail::Peer;
use towline_core::time::Instant;

use crate::stream::connection::Connection;

/// A peer of the rail.
#[derive(Debug)]
pub(crate) struct PeerEntry {
    pub(crate) peer: Peer,
    pub(crate) rank: u32,
    pub(crate) instance: u64,
    pub(crate) host: u64,
    /// Its addresses to try, best first.
    pub(crate) candidates: Vec<SocketAddr>,
    pub(crate) state: ConnState,
    /// It is in `Rail::ready`.
    pub(crate) ready: bool,
    /// It is in `Rail::sending`.
    pub(crate) sending: bool,
}

/// The state of the connection to a peer.
#[derive(Debug)]
pub(crate) enum ConnState {
    /// The peer was not used yet.
    Unused,
    /// The next poll begins to connect.
    Requested,
    /// The connection is being made.
    Connecting(Attempts),
    /// Frames can be sent and received.
    Connected(Box<Connection>),
    /// The connection was lost, and there will be no other.
    Lost,
}

/// This rank's own attempts to connect to a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempts {
    /// The slot of the attempt in `Rail::pendings`; `None` while a connection of the peer, or a descriptor, is awaited.
    pub(crate) pending: Option<u32>,
    /// The index of the candidate that is tried.
    pub(crate) candidate: usize,
    /// Attempts at this candidate.
    pub(crate) tries: u32,
    /// Whether the last attempt timed out.
    pub(crate) timed_out: bool,
    /// The deadline of all attempts together.
    pub(crate) deadline: Instant,
}
