//! Memory for sockets and datagrams.

use smoltcp::iface::SocketStorage;
use smoltcp::socket::udp::PacketMetadata;

/// Bytes of the longest datagram: what a frame of Ethernet has after the headers of IPv4 and UDP.
pub const LONGEST: usize = 1500 - 20 - 8;
/// Addresses that datagrams are sent to at the same time. Each has a socket.
pub const PEERS: usize = 16;
/// Datagrams that wait for the Ethernet address of their receiver. More are lost.
const WAITING: usize = 2;

/// Memory of an interface.
#[derive(Debug)]
pub struct Memory {
    pub(crate) sockets: [SocketStorage<'static>; PEERS + 1],
    pub(crate) received: Queue<1>,
    pub(crate) waiting: [Queue<WAITING>; PEERS],
}

/// Memory for `N` datagrams.
#[derive(Debug)]
pub struct Queue<const N: usize> {
    pub(crate) entries: [PacketMetadata; N],
    pub(crate) bytes: [[u8; LONGEST]; N],
}

impl<const N: usize> Queue<N> {
    const EMPTY: Self = Self { entries: [PacketMetadata::EMPTY; N], bytes: [[0; LONGEST]; N] };
}

impl Memory {
    /// The memory, without any socket.
    pub const fn new() -> Self {
        Self { sockets: [SocketStorage::EMPTY; PEERS + 1], received: Queue::EMPTY, waiting: [Queue::EMPTY; PEERS] }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}
