//! The state of a peer, and of the connection to it.

use std::sync::Arc;

use towline_core::rail::Peer;
use towline_core::time::Instant;

use crate::bookkeeping::send_queue::SendQueue;
use crate::device::{AddressHandle, ReliableQueuePair};
use crate::wire::card::Card;

/// A peer.
#[derive(Debug)]
pub struct PeerState {
    pub peer: Peer,
    pub card: Card,
    pub state: ConnState,
    pub connection: Option<Connection>,
    /// The destination of hellos to it, once one was sent.
    pub address_handle: Option<Arc<AddressHandle>>,
}

/// The state of the connection to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnState {
    /// The peer was not used yet.
    Idle,
    /// A connection was requested; the next poll begins with it.
    Requested,
    /// There is a queue pair, and hellos are exchanged.
    Handshake,
    /// Frames can travel.
    Established,
    /// The peer is lost.
    Lost,
}

/// A connection, from the beginning of its handshake on.
#[derive(Debug)]
pub struct Connection {
    pub queue_pair: ReliableQueuePair,
    /// Its number, higher than that of any earlier connection of this rail.
    pub number: u64,
    /// Sequence number of the first packet that our queue pair sends.
    pub first_packet: u32,
    /// The number that the peer gave the connection; zero until our queue pair is connected to the peer's.
    pub remote_number: u64,
    pub send_queue: SendQueue,
    pub tail: Tail,
    /// When the device reported the last completion of a work request.
    pub last_heard: Instant,
    pub hellos: HelloSchedule,
}

/// The last frames of a burst, whose completion the device does not report by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tail {
    /// Whether the endpoint is in the list of those with a tail.
    pub is_listed: bool,
    /// Number of the next work request when the tail was looked at last.
    pub seen: u32,
}

/// When hellos of a handshake are sent.
#[derive(Clone, Copy, Debug)]
pub struct HelloSchedule {
    /// How many were sent.
    pub sent: u32,
    /// When to send the next one.
    pub next: Instant,
    /// When to give up.
    pub deadline: Instant,
}

impl PeerState {
    /// A peer that was not used yet.
    pub const fn new(peer: Peer, card: Card) -> Self {
        Self { peer, card, state: ConnState::Idle, connection: None, address_handle: None }
    }

    /// The connection, if frames can travel by it.
    pub fn established(&mut self) -> Option<&mut Connection> {
        if self.state == ConnState::Established { self.connection.as_mut() } else { None }
    }
}
