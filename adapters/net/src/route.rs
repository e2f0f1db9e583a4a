//! Which addresses of a peer are tried, and in which order. No code here uses a socket.

use std::net::{IpAddr, SocketAddr};

use crate::card::{Card, CardAddress};
use crate::interfaces::{Interface, same_network};

/// Most addresses of one peer that are tried.
pub const MAX_CANDIDATES: usize = 8;

/// How an address of a peer relates to the addresses of this host. The best relation is last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Relation {
    /// This host has no allowed address of the same family (IPv4 or IPv6).
    Family,
    /// A loopback address of another host, or of this host while the loopback interface is not allowed here.
    Loopback,
    /// One end has a private address, the other a public one.
    Scope,
    /// The addresses are in different networks, but both private or both public, so a router may connect them.
    Routed,
    /// The same network prefix.
    SameNetwork,
    /// The peer is on this host, and is reached by the loopback interface.
    SameHost,
}

impl Relation {
    /// Whether such an address is tried.
    pub const fn is_usable(self) -> bool {
        matches!(self, Self::Scope | Self::Routed | Self::SameNetwork | Self::SameHost)
    }

    /// The relation in words, for the log.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Family => "no address of its family is allowed here",
            Self::Loopback => "a loopback address does not reach another host",
            Self::Scope => "one address is private, the other public",
            Self::Routed => "another network, through a router",
            Self::SameNetwork => "the same network",
            Self::SameHost => "the same host",
        }
    }
}

/// The best relation of a peer's address to any of the addresses that are allowed on this host.
pub fn best_relation(own: &[Interface], same_host: bool, to: &CardAddress) -> Relation {
    own.iter().map(|own| relation_between(own, same_host, to)).max().unwrap_or(Relation::Family)
}

fn relation_between(own: &Interface, same_host: bool, to: &CardAddress) -> Relation {
    if own.address.is_ipv4() != to.address.is_ipv4() {
        return Relation::Family;
    }
    if own.loopback || to.address.is_loopback() {
        let both = own.loopback && to.address.is_loopback();
        return if both && same_host { Relation::SameHost } else { Relation::Loopback };
    }
    if own.prefix == to.prefix && same_network(own.address, to.address, to.prefix) {
        Relation::SameNetwork
    } else if is_private(own.address) == is_private(to.address) {
        Relation::Routed
    } else {
        Relation::Scope
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unique_local(),
    }
}

/// The addresses of a peer to try, best first; at most [`MAX_CANDIDATES`]. `own` are the addresses of this host that are allowed,
/// `own_host` is its number. Equally good addresses are rotated by the number of the link, so that links spread over networks.
pub fn candidates(own: &[Interface], own_host: u64, link: u8, peer: &Card) -> Vec<SocketAddr> {
    let same_host = own_host == peer.host;
    let mut ranked: Vec<(Relation, SocketAddr)> = Vec::new();
    for entry in &peer.addresses {
        let relation = best_relation(own, same_host, entry);
        let address = SocketAddr::new(entry.address, entry.port);
        log::debug!("rank {} at {address}: {}", peer.rank, relation.reason());
        if relation.is_usable() {
            ranked.push((relation, address));
        }
    }
    ranked.sort_by_key(|(relation, address)| (std::cmp::Reverse(*relation), address.is_ipv6()));
    for equals in ranked.chunk_by_mut(|one, other| one.0 == other.0 && one.1.is_ipv4() == other.1.is_ipv4()) {
        equals.rotate_left(usize::from(link) % equals.len());
    }
    ranked.into_iter().map(|(_, address)| address).take(MAX_CANDIDATES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(address: &str, prefix: u8) -> Interface {
        let address: IpAddr = address.parse().unwrap();
        Interface { name: "test".into(), address, prefix, loopback: address.is_loopback() }
    }

    fn peer(host: u64, addresses: &[(&str, u8)]) -> Card {
        let entry = |(address, prefix): &(&str, u8)| CardAddress {
            address: address.parse().unwrap(),
            prefix: *prefix,
            port: 9,
        };
        Card { link: 0, job: 0, instance: 0, host, rank: 1, addresses: addresses.iter().map(entry).collect() }
    }

    fn tried(own: &[Interface], link: u8, peer: &Card) -> Vec<String> {
        candidates(own, 1, link, peer).iter().map(|it| it.ip().to_string()).collect()
    }

    #[test]
    fn the_same_network_comes_first_and_loopback_stays_on_the_host() {
        let here = [own("127.0.0.1", 8), own("10.0.0.1", 24), own("10.0.1.1", 24), own("fd00::1", 64)];
        let there = [("127.0.0.1", 8), ("172.20.0.9", 16), ("192.0.2.7", 24), ("10.0.1.2", 24), ("fd00::2", 64)];
        assert_eq!(tried(&here, 0, &peer(2, &there)), ["10.0.1.2", "fd00::2", "172.20.0.9", "192.0.2.7"]);
        assert_eq!(tried(&here, 0, &peer(1, &there))[0], "127.0.0.1");
    }

    #[test]
    fn without_a_common_family_there_is_no_route() {
        assert!(tried(&[own("10.0.0.1", 24)], 0, &peer(2, &[("fd00::2", 64), ("127.0.0.1", 8)])).is_empty());
        assert!(tried(&[own("127.0.0.1", 8)], 0, &peer(2, &[("10.0.0.2", 24)])).is_empty());
    }

    #[test]
    fn links_spread_over_equal_networks() {
        let here = [own("10.0.0.1", 24), own("10.0.1.1", 24)];
        let there = peer(2, &[("10.0.0.2", 24), ("10.0.1.2", 24)]);
        assert_eq!(tried(&here, 0, &there), ["10.0.0.2", "10.0.1.2"]);
        assert_eq!(tried(&here, 1, &there), ["10.0.1.2", "10.0.0.2"]);
    }
}
