//! The peers of a rail, by endpoint, rank and queue pair.

use std::collections::HashMap;

use super::peer::{Connection, PeerState};
use crate::sizes::MAX_ENDPOINTS;

/// The peers of a rail.
#[derive(Debug)]
pub struct PeerTable {
    /// By endpoint.
    entries: Vec<Option<PeerState>>,
    /// Endpoints without a peer.
    free: Vec<u32>,
    /// Endpoints by rank.
    by_rank: HashMap<u32, u32>,
    /// By rank: the instance of the last hello that counted, and the number of its sender's connection; also of deleted peers.
    last_heard: HashMap<u32, (u64, u64)>,
    /// Numbers of our queue pairs with their endpoints, in order of the numbers.
    by_queue_pair: Vec<(u32, u32)>,
    /// Number of the next connection.
    next_connection: u64,
}

impl PeerTable {
    pub fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            by_rank: HashMap::new(),
            last_heard: HashMap::new(),
            by_queue_pair: Vec::new(),
            next_connection: 1,
        }
    }

    /// How many endpoints there are, those without a peer included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub fn get(&self, endpoint: u32) -> Option<&PeerState> {
        self.entries.get(endpoint as usize)?.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, endpoint: u32) -> Option<&mut PeerState> {
        self.entries.get_mut(endpoint as usize)?.as_mut()
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

    /// Adds a peer; its endpoint. `None` where there are too many. Reserves room, so that nothing is allocated here when the peer
    /// is connected or deleted.
    pub fn insert(&mut self, peer: PeerState) -> Option<u32> {
        let endpoint = self.free.pop().unwrap_or(self.entries.len() as u32);
        if endpoint as usize >= MAX_ENDPOINTS {
            return None;
        }
        if endpoint as usize == self.entries.len() {
            self.entries.push(None);
        }
        self.by_rank.insert(peer.card.rank, endpoint);
        self.entries[endpoint as usize] = Some(peer);
        let count = self.entries.len();
        self.free.reserve(count.saturating_sub(self.free.len()));
        self.by_queue_pair.reserve(count.saturating_sub(self.by_queue_pair.len()));
        Some(endpoint)
    }

    /// Removes a peer.
    pub fn remove(&mut self, endpoint: u32) {
        let Some(peer) = self.entries.get_mut(endpoint as usize).and_then(Option::take) else { return };
        self.by_rank.remove(&peer.card.rank);
        self.free.push(endpoint);
    }

    /// The endpoint of a rank.
    pub fn of_rank(&self, rank: u32) -> Option<u32> {
        self.by_rank.get(&rank).copied()
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

    /// The instance of the last hello of a rank that counted, and the number of the rank's connection.
    pub fn last_heard(&self, rank: u32) -> Option<(u64, u64)> {
        self.last_heard.get(&rank).copied()
    }

    /// Notes a hello of a rank that counted.
    pub fn set_last_heard(&mut self, rank: u32, instance: u64, number: u64) {
        self.last_heard.insert(rank, (instance, number));
    }
}
