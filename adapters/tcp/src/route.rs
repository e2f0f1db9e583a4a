//! Which of a peer's addresses to try, and in which order. Pure: no socket in here.

use std::net::{IpAddr, SocketAddr};

use crate::card::{Card, Reach};
use crate::interfaces::{Interface, same_network};

/// Addresses of one peer that are tried at most.
pub const MAX_CANDIDATES: usize = 8;

/// Why an address of a peer is or is not tried, best last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Match {
    /// No address of this family is allowed here.
    Family,
    /// A loopback address of another host, or of this one while loopback is not allowed here.
    Loopback,
    /// One side is a private address, the other is public.
    Scope,
    /// Another network of the same scope: a router may know the way.
    Routed,
    /// The same network.
    SameNetwork,
    /// This host.
    SameHost,
}

impl Match {
    /// Whether such an address is tried at all.
    pub const fn is_usable(self) -> bool {
        matches!(self, Self::Scope | Self::Routed | Self::SameNetwork | Self::SameHost)
    }

    /// For the log.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Family => "no address of its family is allowed here",
            Self::Loopback => "a loopback address leads to no other host",
            Self::Scope => "one side is private, the other public",
            Self::Routed => "another network, by a router",
            Self::SameNetwork => "the same network",
            Self::SameHost => "the same host",
        }
    }
}

/// How well an address of a peer goes with those that are allowed here.
pub fn judge(own: &[Interface], same_host: bool, to: &Reach) -> Match {
    own.iter().map(|own| judge_pair(own, same_host, to)).max().unwrap_or(Match::Family)
}

fn judge_pair(own: &Interface, same_host: bool, to: &Reach) -> Match {
    if own.address.is_ipv4() != to.address.is_ipv4() {
        return Match::Family;
    }
    if own.loopback || to.address.is_loopback() {
        let both = own.loopback && to.address.is_loopback();
        return if both && same_host { Match::SameHost } else { Match::Loopback };
    }
    if own.prefix == to.prefix && same_network(own.address, to.address, to.prefix) {
        Match::SameNetwork
    } else if is_private(own.address) == is_private(to.address) {
        Match::Routed
    } else {
        Match::Scope
    }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unique_local(),
    }
}

/// The addresses to try, best first; equally good ones are turned by link number, so that links spread over networks.
pub fn candidates(own: &[Interface], own_host: u64, link: u8, peer: &Card) -> Vec<SocketAddr> {
    let same_host = own_host == peer.host;
    let mut ranked: Vec<(Match, SocketAddr)> = Vec::new();
    for reach in &peer.addresses {
        let verdict = judge(own, same_host, reach);
        let address = SocketAddr::new(reach.address, reach.port);
        log::debug!("tcp: rank {} at {address}: {}", peer.rank, verdict.reason());
        if verdict.is_usable() {
            ranked.push((verdict, address));
        }
    }
    ranked.sort_by_key(|(verdict, address)| (std::cmp::Reverse(*verdict), address.is_ipv6()));
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
        let reach =
            |(address, prefix): &(&str, u8)| Reach { address: address.parse().unwrap(), prefix: *prefix, port: 9 };
        Card { link: 0, job: 0, instance: 0, host, rank: 1, addresses: addresses.iter().map(reach).collect() }
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
    fn without_a_common_family_there_is_no_way() {
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
