//! The peers of a rail, and their addresses.

use towline_core::arena::{Arena, OutOfMemory};
use towline_core::rail::{Endpoint, Peer, Unreachable};

use crate::address::Address;

/// A peer.
type Entry = Option<(Peer, Address)>;

/// The peers.
#[derive(Debug)]
pub struct Peers<'m>(&'m mut [Entry]);

impl<'m> Peers<'m> {
    /// The bytes of a table for `count` peers.
    pub const fn cost(count: u32) -> usize {
        Arena::cost::<Entry>(count as usize)
    }

    pub fn new(arena: &mut Arena<'m>, count: u32) -> Result<Self, OutOfMemory> {
        Ok(Self(arena.filled(count as usize, None)?))
    }

    /// Adds a peer, or changes the number of the peer with this address.
    pub fn add(&mut self, peer: Peer, address: Address) -> Result<Endpoint, Unreachable> {
        let known = self.0.iter().position(|entry| matches!(entry, Some((_, other)) if *other == address));
        let free = || self.0.iter().position(Option::is_none);
        let at = known.or_else(free).ok_or(Unreachable::Full)?;
        if let Some(entry) = self.0.get_mut(at) {
            *entry = Some((peer, address));
        }
        Ok(Endpoint(at as u32))
    }

    pub fn remove(&mut self, endpoint: Endpoint) -> Option<Peer> {
        self.0.get_mut(endpoint.0 as usize)?.take().map(|(peer, _)| peer)
    }

    pub fn address(&self, endpoint: Endpoint) -> Option<&Address> {
        self.0.get(endpoint.0 as usize)?.as_ref().map(|(_, address)| address)
    }

    /// The peer with an address. A search through the table, which is short on a device.
    pub fn of(&self, address: &Address) -> Option<Peer> {
        self.0.iter().flatten().find(|(_, other)| other == address).map(|(peer, _)| *peer)
    }
}
