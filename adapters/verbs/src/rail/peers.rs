//! The peers of a rail, by endpoint, rank and queue pair.

use std::collections::HashMap;

use towline_core::rail::Unreachable;
use towline_net::{Identity, Member, PeerTable};

use super::peer::{Connection, PeerState};
use crate::sizes::MAX_ENDPOINTS;

/// The peers of a rail.
#[derive(Debug)]
pub struct Peers {
    table: PeerTable<PeerState>,
    /// By rank: the instance in the last hello that counted, and the number of its sender's connection. Entries of deleted peers
    /// stay.
    last_heard: HashMap<u32, (u64, u64)>,
    /// Numbers of our queue pairs with their endpoints, in order of the numbers.
    by_queue_pair: Vec<(u32, u32)>,
    /// Number of the next connection.
    next_connection: u64,
}

impl Peers {
    pub fn new() -> Self {
        Self {
            table: PeerTable::new(MAX_ENDPOINTS),
            last_heard: HashMap::new(),
            by_queue_pair: Vec::new(),
            next_connection: 1,
        }
    }

    /// How many endpoints there are, those without a peer included.
    pub fn count(&self) -> u32 {
        self.table.endpoints()
    }

    #[inline]
    pub fn get(&self, endpoint: u32) -> Option<&PeerState> {
        self.table.get(endpoint)
    }

    #[inline]
    pub fn get_mut(&mut self, endpoint: u32) -> Option<&mut PeerState> {
        self.table.get_mut(endpoint)
    }

    /// The connection to a peer, established or not.
    #[inline]
    pub fn connection(&self, endpoint: u32) -> Option<&Connection> {
        self.get(endpoint)?.connection.as_ref()
    }

    /// The connection to a peer, established or not.
    #[inline]
    pub fn connection_mut(&mut self, endpoint: u32) -> Option<&mut Connection> {
        self.get_mut(endpoint)?.connection.as_mut()
    }

    /// Checks that the owner of a card can be added.
    ///
    /// # Errors
    /// As [`PeerTable::check`].
    pub fn check(&self, own: Member, peer: Member) -> Result<(), Unreachable> {
        self.table.check("verbs", own, peer)
    }

    /// Adds a peer, and returns its endpoint. Reserves room, so that nothing is allocated here when the peer is connected or
    /// deleted.
    ///
    /// # Errors
    /// [`Unreachable::Full`] where there are too many peers.
    pub fn add(&mut self, peer: PeerState) -> Result<u32, Unreachable> {
        let endpoint = self.table.add(peer.card.rank, peer)?;
        let count = self.table.endpoints() as usize;
        self.by_queue_pair.reserve(count.saturating_sub(self.by_queue_pair.len()));
        Ok(endpoint)
    }

    /// Removes a peer.
    pub fn remove(&mut self, endpoint: u32) {
        self.table.remove(endpoint);
    }

    /// The endpoint of a rank.
    pub fn of_rank(&self, rank: u32) -> Option<u32> {
        self.table.endpoint_of(rank)
    }

    /// The endpoint of one of our queue pairs.
    #[inline]
    pub fn of_queue_pair(&self, queue_pair: u32) -> Option<u32> {
        let at = self.by_queue_pair.binary_search_by_key(&queue_pair, |(number, _)| *number).ok()?;
        self.by_queue_pair.get(at).map(|(_, endpoint)| *endpoint)
    }

    /// Notes that one of our queue pairs belongs to an endpoint.
    pub fn bind_queue_pair(&mut self, queue_pair: u32, endpoint: u32) {
        let at = self.by_queue_pair.partition_point(|(other, _)| *other < queue_pair);
        self.by_queue_pair.insert(at, (queue_pair, endpoint));
    }

    /// Notes that one of our queue pairs belongs to no endpoint any more.
    pub fn unbind_queue_pair(&mut self, queue_pair: u32) {
        self.by_queue_pair.retain(|(other, _)| *other != queue_pair);
    }

    /// Whether there is a connection, established or not.
    pub fn has_connections(&self) -> bool {
        !self.by_queue_pair.is_empty()
    }

    /// The number of the next connection; each call gives a higher one.
    pub fn next_connection_number(&mut self) -> u64 {
        self.next_connection += 1;
        self.next_connection - 1
    }

    /// The instance in the last hello of a rank that counted, and the number of the connection in that hello.
    pub fn last_heard(&self, rank: u32) -> Option<(u64, u64)> {
        self.last_heard.get(&rank).copied()
    }

    /// Notes a hello that counted: its identity, and the number of its sender's connection.
    pub fn set_last_heard(&mut self, identity: &Identity, number: u64) {
        self.last_heard.insert(identity.from, (identity.from_instance, number));
    }
}
