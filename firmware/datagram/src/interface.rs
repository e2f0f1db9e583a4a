//! What a driver of a network interface provides.

use crate::address::Address;

/// A network interface that sends and receives datagrams. No method waits. An interface may lose, repeat, reorder and change
/// datagrams.
pub trait Interface {
    /// The address by which other interfaces reach it. It never changes.
    fn address(&self) -> Address;

    /// Bytes of the longest datagram, both sent and received. It never changes.
    fn longest(&self) -> usize;

    /// How many datagrams the interface can take at most before it has sent any. At least 1. It never changes.
    fn capacity(&self) -> usize;

    /// How many datagrams the interface takes now.
    fn room(&mut self) -> usize;

    /// Takes a datagram for an address. Without room, the datagram is lost.
    fn send(&mut self, to: &Address, datagram: &[u8]);

    /// Copies the next datagram that has arrived to the begin of `into`, which has room for the longest datagram. Returns its length
    /// and its sender, or `None` if no datagram has arrived. The receiver accepts what the sender's address claims, since the link
    /// above has checksums but no secrets: use it in networks whose hosts are trusted.
    fn receive(&mut self, into: &mut [u8]) -> Option<(usize, Address)>;

    /// Whether a datagram has arrived that was not received yet. An interface that cannot tell returns `true`, so that its caller
    /// does not sleep.
    fn has_arrived(&mut self) -> bool;
}
