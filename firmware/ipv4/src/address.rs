//! IPv4 address, network, router and port of a card.
//!
//! Who configures the card chooses an Ethernet address of local administration that begins with 02:42. The other four bytes are the
//! IPv4 address: 02:42:c0:00:02:07 is 192.0.2.7. The network has 24 bits, and its router has the number 1.

use core::net::Ipv4Addr;

/// The port at which each interface is reached. It is above those that Linux gives out.
pub const PORT: u16 = 61_100;
/// Bits of an address that name the network.
pub const NETWORK_BITS: u8 = 24;
/// The number of the router in the network.
const ROUTER: u8 = 1;

/// The IPv4 address of a card with this Ethernet address. Returns `None` if the card has none, since its Ethernet address begins
/// with other bytes, or since the rest is not the address of a host.
pub fn of_ethernet(ethernet: [u8; 6]) -> Option<Ipv4Addr> {
    let [0x02, 0x42, a, b, c, number] = ethernet else { return None };
    let address = Ipv4Addr::new(a, b, c, number);
    let is_host = !matches!(number, 0 | 255) && !address.is_multicast() && a != 0;
    is_host.then_some(address)
}

/// The router of the network of an address.
pub fn router_of(address: Ipv4Addr) -> Ipv4Addr {
    let [a, b, c, _] = address.octets();
    Ipv4Addr::new(a, b, c, ROUTER)
}

/// Where a datagram for `to` is sent to: to the receiver in the same network, or to the router.
pub fn next_hop(own: Ipv4Addr, to: Ipv4Addr) -> Ipv4Addr {
    if router_of(own) == router_of(to) { to } else { router_of(own) }
}
