//! Memory for sockets and datagrams.

use smoltcp::iface::SocketStorage;
use smoltcp::socket::udp::PacketMetadata;

/// Bytes of the longest datagram: what a frame of Ethernet has after the headers of IPv4 and UDP.
pub const LONGEST: usize = 1500 - 20 - 8;
/// Addresses that datagrams are sent to at the same time. Each has a socket.
pub const PEERS: usize = 16;
/// Datagrams that wait for the Ethernet address of their receiver. More are lost.
pub(crate) const WAITING: usize = 2;

/// The sockets of an interface, and what they note of datagrams.
#[derive(Debug)]
pub struct Tables {
    pub(crate) sockets: [SocketStorage<'static>; PEERS + 1],
    pub(crate) received: [PacketMetadata; 1],
    pub(crate) waiting: [[PacketMetadata; WAITING]; PEERS],
}

/// The bytes of the datagrams of an interface. They are zero, so that a program does not have to contain them.
#[derive(Debug)]
pub struct Bytes {
    pub(crate) received: [u8; LONGEST],
    pub(crate) waiting: [[u8; WAITING * LONGEST]; PEERS],
}

/// Memory of an interface.
#[derive(Debug)]
pub struct Memory<'a> {
    /// The sockets.
    pub tables: &'a mut Tables,
    /// The datagrams.
    pub bytes: &'a mut Bytes,
}

impl Tables {
    /// Without any socket.
    pub const fn new() -> Self {
        const NONE: PacketMetadata = PacketMetadata::EMPTY;
        Self { sockets: [SocketStorage::EMPTY; PEERS + 1], received: [NONE; 1], waiting: [[NONE; WAITING]; PEERS] }
    }
}

impl Default for Tables {
    fn default() -> Self {
        Self::new()
    }
}

impl Bytes {
    /// Without any datagram.
    pub const fn new() -> Self {
        Self { received: [0; LONGEST], waiting: [[0; WAITING * LONGEST]; PEERS] }
    }
}

impl Default for Bytes {
    fn default() -> Self {
        Self::new()
    }
}
