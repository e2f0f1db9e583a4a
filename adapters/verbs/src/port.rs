//! The choice of a port and of one of its addresses, with the reason. No code here calls a device.

use std::fmt;

use towline_core::rail::Unreachable;

use crate::address::{Gid, GidKind};
use crate::wire::card::Card;

/// One entry of a port's table of GIDs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GidEntry {
    /// Its index in the table.
    pub index: u32,
    /// The address.
    pub gid: Gid,
    /// The network that it belongs to.
    pub kind: GidKind,
}

/// An address that was chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GidChoice {
    /// The entry.
    pub entry: GidEntry,
    /// Why this one was chosen.
    pub why: &'static str,
}

impl fmt::Display for GidChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GidEntry { index, gid, kind } = self.entry;
        write!(f, "GID {index}, {gid}, {kind}: {}", self.why)
    }
}

/// Why no address of a port can be used.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoGid {
    /// The port has none.
    Empty,
    /// The port has none at the index that the settings ask for.
    NotThere(u32),
}

impl fmt::Display for NoGid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the port has no address: give its network interface one"),
            Self::NotThere(index) => {
                write!(f, "the port has no GID {index}, which TOWLINE_VERBS_GID_INDEX asks for: choose another index")
            }
        }
    }
}

impl std::error::Error for NoGid {}

towline_core::debug_as_display!(NoGid);

/// Chooses one of a port's addresses. If the settings ask for an index (`asked`), it is the address with that index.
/// Otherwise it is the first one with InfiniBand; with RoCE, v2 comes before v1, since v2 can be routed, and IPv4 before IPv6
/// before link-local addresses.
///
/// # Errors
/// [`NoGid`] where the port has no such address.
pub fn choose_gid(table: &[GidEntry], asked: Option<u32>) -> Result<GidChoice, NoGid> {
    let usable = |entry: &&GidEntry| !entry.gid.is_zero() && !entry.gid.is_multicast();
    if let Some(index) = asked {
        let entry = table.iter().filter(usable).find(|entry| entry.index == index).ok_or(NoGid::NotThere(index))?;
        return Ok(GidChoice { entry: *entry, why: "the settings ask for it" });
    }
    let rank = |entry: &GidEntry| match (entry.kind, entry.gid) {
        (GidKind::InfiniBand, _) => (0, "the port's first"),
        (GidKind::RoceV2, gid) if gid.is_ipv4() => (1, "can be routed, by IPv4"),
        (GidKind::RoceV2, gid) if !gid.is_link_local() => (2, "can be routed, by IPv6; the port has no IPv4 address"),
        (GidKind::RoceV2, _) => (3, "valid on this network segment alone; the port has none that can be routed"),
        (GidKind::RoceV1, gid) if gid.is_ipv4() => (4, "cannot be routed; the port has none of RoCE v2"),
        (GidKind::RoceV1, gid) if !gid.is_link_local() => (5, "cannot be routed; the port has none of RoCE v2 or IPv4"),
        (GidKind::RoceV1, _) => (6, "the port has no other kind"),
    };
    let best = table.iter().filter(usable).min_by_key(|entry| (rank(entry).0, entry.index)).ok_or(NoGid::Empty)?;
    Ok(GidChoice { entry: *best, why: rank(best).1 })
}

/// A network: ports of one network can reach each other. The order of networks is the same on all hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Network {
    kind: u8,
    is_ipv6: bool,
    subnet: [u8; 8],
}

impl Network {
    fn of(kind: GidKind, gid: Gid) -> Self {
        let (kind, is_ipv6, subnet) = match kind {
            GidKind::InfiniBand => (0, false, gid.subnet()),
            GidKind::RoceV2 => (1, !gid.is_ipv4(), [0; 8]),
            GidKind::RoceV1 => (2, !gid.is_ipv4(), [0; 8]),
        };
        Self { kind, is_ipv6, subnet }
    }
}

/// Chooses one of `ports`, which are given by name and addresses, and one of its addresses. Ports without a usable address
/// are skipped. Where not all ports can reach each other, links are distributed over the networks by their number. So links
/// of the same number, which are to be connected, are on the same network if all hosts have the same networks. `turn` chooses
/// among the ports of that network. Returns the port's index in `ports`, and the address.
///
/// # Errors
/// For each port the reason why it cannot be used.
pub fn choose_port(
    ports: &[(&str, &[GidEntry])],
    asked: Option<u32>,
    link: u8,
    turn: u32,
) -> Result<(usize, GidChoice), Vec<String>> {
    let (mut usable, mut refused) = (Vec::new(), Vec::new());
    for (at, (name, table)) in ports.iter().enumerate() {
        match choose_gid(table, asked) {
            Ok(choice) => usable.push((Network::of(choice.entry.kind, choice.entry.gid), (at, choice))),
            Err(why) => refused.push(format!("{name}: {why}")),
        }
    }
    let mut networks: Vec<Network> = usable.iter().map(|(network, _)| *network).collect();
    networks.sort_unstable();
    networks.dedup();
    let Some(network) = networks.get(usize::from(link) % networks.len().max(1)) else { return Err(refused) };
    usable.retain(|(of, _)| of == network);
    let turn = turn as usize / networks.len() % usable.len();
    Ok(usable[turn].1)
}

/// Whether packets from one address can reach a peer's.
///
/// # Errors
/// [`Unreachable::NoNetwork`], and the reason in words.
pub fn check_route(own: &GidEntry, card: &Card) -> Result<(), (Unreachable, &'static str)> {
    if Network::of(own.kind, own.gid) == Network::of(card.kind, card.gid) {
        return Ok(());
    }
    let why = match (own.kind, card.kind) {
        (GidKind::InfiniBand, GidKind::InfiniBand) => "the ends are in different InfiniBand subnets",
        (GidKind::InfiniBand, _) | (_, GidKind::InfiniBand) => "one end is InfiniBand, the other is Ethernet",
        (one, other) if one != other => "one end uses RoCE v1, the other RoCE v2",
        _ => "one end has an IPv4 address, the other an IPv6 address",
    };
    Err((Unreachable::NoNetwork, why))
}

/// Whether a list of the form of `TOWLINE_VERBS_DEVICES` selects a port. An entry is the name of a device, which selects all its
/// ports, or a device and a port number with a colon in between. An empty list selects all ports.
pub fn is_selected(list: &[String], device: &str, port: u8) -> bool {
    list.is_empty()
        || list.iter().any(|name| match name.rsplit_once(':') {
            Some((name, number)) => name == device && number.parse() == Ok(port),
            None => name == device,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Mtu;

    const LOCAL: Gid = Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 1]);
    const V4: Gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1]);
    const V6: Gid = Gid([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);

    fn table(entries: &[(Gid, GidKind)]) -> Vec<GidEntry> {
        let entry =
            |(index, (gid, kind)): (usize, &(Gid, GidKind))| GidEntry { index: index as u32, gid: *gid, kind: *kind };
        entries.iter().enumerate().map(entry).collect()
    }

    #[test]
    fn the_address_with_the_widest_reach_is_chosen() {
        use GidKind::{InfiniBand, RoceV1, RoceV2};
        // As mlx5 lists them: each address once for v1, once for v2.
        let all = [(LOCAL, RoceV1), (LOCAL, RoceV2), (V6, RoceV1), (V6, RoceV2), (V4, RoceV1), (V4, RoceV2)];
        let mut left = all.to_vec();
        for index in [5, 3, 1, 4, 2, 0] {
            let choice = choose_gid(&table(&left), None).unwrap();
            assert_eq!((choice.entry.index, choice.entry.gid), (index, all[index as usize].0), "{choice}");
            left[index as usize].0 = Gid([0; 16]); // an entry that is not in use
        }
        assert_eq!(choose_gid(&table(&left), None), Err(NoGid::Empty));
        let infiniband = table(&[(LOCAL, InfiniBand), (V6, InfiniBand)]);
        assert_eq!(choose_gid(&infiniband, None).unwrap().entry.index, 0);
    }

    #[test]
    fn the_choice_is_explained() {
        let choice = choose_gid(&table(&[(LOCAL, GidKind::RoceV1), (V4, GidKind::RoceV2)]), None).unwrap();
        assert_eq!(choice.to_string(), "GID 1, ::ffff:10.0.0.1, RoCE v2: can be routed, by IPv4");
    }

    #[test]
    fn an_address_that_the_settings_ask_for_is_taken_or_named_in_the_error() {
        let table = table(&[(LOCAL, GidKind::RoceV1), (Gid([0; 16]), GidKind::RoceV2), (V4, GidKind::RoceV2)]);
        assert_eq!(choose_gid(&table, Some(0)).unwrap().entry, table[0]);
        for missing in [1, 3] {
            let why = choose_gid(&table, Some(missing)).unwrap_err();
            assert_eq!(why, NoGid::NotThere(missing));
            assert!(why.to_string().contains(&format!("GID {missing}")), "{why}");
        }
    }

    #[test]
    fn a_port_without_an_address_is_skipped() {
        let (none, one, other) =
            (table(&[]), table(&[(V4, GidKind::RoceV2)]), table(&[(V4, GidKind::RoceV1), (V4, GidKind::RoceV2)]));
        let ports = [("a:1", &none[..]), ("b:1", &one), ("c:1", &other)];
        let chosen = |asked, turn| choose_port(&ports, asked, 0, turn).map(|(at, choice)| (at, choice.entry.index));
        assert_eq!([0, 1, 2, 3].map(|turn| chosen(None, turn)), [Ok((1, 0)), Ok((2, 1)), Ok((1, 0)), Ok((2, 1))]);
        assert_eq!(chosen(Some(1), 0), Ok((2, 1)), "the others have none at that index");
        let why = chosen(Some(7), 0).unwrap_err();
        assert_eq!(why.len(), 3);
        assert!(why[0].starts_with("a:1: the port has no GID 7"), "{why:?}");
        assert_eq!(choose_port(&[], None, 0, 0), Err(vec![]));
    }

    #[test]
    fn links_of_one_number_are_on_one_network() {
        use GidKind::{InfiniBand, RoceV2};
        let (left, right, ethernet) =
            (table(&[(LOCAL, InfiniBand)]), table(&[(V6, InfiniBand)]), table(&[(V4, RoceV2)]));
        // Two hosts that list them in different orders.
        let one = [("a:1", &ethernet[..]), ("b:1", &left), ("b:2", &right), ("c:1", &left)];
        let other = [("a:1", &right[..]), ("b:1", &left), ("b:2", &left), ("c:1", &ethernet)];
        let gid = |ports, link, turn| choose_port(ports, None, link, turn).unwrap().1.entry.gid;
        for link in 0..6 {
            for (here, there) in [(0, 0), (0, 1), (1, 0), (5, 7)] {
                let (here, there) = (gid(&one, link, here), gid(&other, link, there));
                assert_eq!(here, there, "link {link}");
            }
        }
        // Ranks of one host with three links each: InfiniBand subnets in their order, then Ethernet.
        let used =
            |rank: u32| [0, 1, 2].map(|link| choose_port(&one, None, link, rank * 3 + u32::from(link)).unwrap().0);
        assert_eq!([0, 1, 2].map(used), [[2, 1, 0], [2, 3, 0], [2, 1, 0]], "ranks share the ports of a network");
    }

    #[test]
    fn ends_on_different_networks_get_the_reason() {
        let card = |kind, gid| Card {
            link: 0,
            kind,
            mtu: Mtu::Bytes256,
            job: 0,
            instance: 0,
            rank: 0,
            hello_queue: 2,
            hello_key: 0,
            longest: 0,
            gid,
            lid: 0,
            reads: 1,
        };
        let from = |kind, gid| GidEntry { index: 0, gid, kind };
        use GidKind::{InfiniBand, RoceV1, RoceV2};
        for (kind, gid, other, there) in
            [(RoceV2, V4, RoceV2, V4), (RoceV1, LOCAL, RoceV1, V6), (InfiniBand, LOCAL, InfiniBand, LOCAL)]
        {
            assert_eq!(check_route(&from(kind, gid), &card(other, there)), Ok(()));
        }
        for (kind, gid, other, there, word) in [
            (RoceV2, V4, RoceV1, V4, "RoCE v1"),
            (RoceV2, V4, RoceV2, V6, "IPv6"),
            (RoceV2, V4, InfiniBand, V4, "Ethernet"),
            (InfiniBand, LOCAL, InfiniBand, V6, "subnet"),
        ] {
            let (answer, why) = check_route(&from(kind, gid), &card(other, there)).unwrap_err();
            assert_eq!(answer, Unreachable::NoNetwork);
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn ports_are_selected_by_device_or_one_by_one() {
        let list = ["mlx5_0:2".to_string(), "rxe1".to_string()];
        let named = [("mlx5_0", 1), ("mlx5_0", 2), ("rxe1", 1), ("rxe1", 2), ("rxe", 1)];
        assert_eq!(named.map(|(device, port)| is_selected(&list, device, port)), [false, true, true, true, false]);
        assert!(is_selected(&[], "anything", 3));
    }
}
