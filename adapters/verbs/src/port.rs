//! Which port, which of its addresses and which MTU are used, and why. Pure: no device in here.

use std::fmt;

use towline_core::rail::Unreachable;

use crate::wire::card::Card;

/// An address of a port.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// No address.
    pub fn is_zero(self) -> bool {
        self.0 == [0; 16]
    }

    /// An address of nobody alone.
    pub const fn is_multicast(self) -> bool {
        self.0[0] == 0xff
    }

    /// An IPv4 address as RoCE writes it.
    pub fn is_ipv4(self) -> bool {
        self.0[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
    }

    /// One that is good on one network segment alone.
    pub const fn is_link_local(self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }

    /// What of it names the subnet, with InfiniBand.
    fn subnet(self) -> [u8; 8] {
        std::array::from_fn(|at| self.0[at])
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::net::Ipv6Addr::from(self.0).fmt(f)
    }
}

/// What a GID is of: how packets with it travel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// InfiniBand.
    InfiniBand = 0,
    /// Ethernet frames.
    RoceV1 = 1,
    /// UDP datagrams.
    RoceV2 = 2,
}

impl Kind {
    /// By its number.
    pub const fn of(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::InfiniBand),
            1 => Some(Self::RoceV1),
            2 => Some(Self::RoceV2),
            _ => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::RoceV1 => "RoCE v1",
            Self::RoceV2 => "RoCE v2",
        })
    }
}

/// What a port carries at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Mtu {
    Bytes256 = 1,
    Bytes512 = 2,
    Bytes1024 = 3,
    Bytes2048 = 4,
    Bytes4096 = 5,
}

impl Mtu {
    /// By the number that verbs have for it.
    pub const fn of(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Bytes256),
            2 => Some(Self::Bytes512),
            3 => Some(Self::Bytes1024),
            4 => Some(Self::Bytes2048),
            5 => Some(Self::Bytes4096),
            _ => None,
        }
    }

    /// The largest one of at most so many bytes.
    pub fn within(bytes: u32) -> Option<Self> {
        (1..=5).rev().filter_map(Self::of).find(|mtu| mtu.bytes() <= bytes)
    }

    /// In bytes.
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }
}

/// One entry of a port's table of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its place in the table.
    pub index: u32,
    /// The address.
    pub gid: Gid,
    /// What it is of.
    pub kind: Kind,
}

/// An address that was chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The entry.
    pub entry: Entry,
    /// Why this one.
    pub why: &'static str,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { index, gid, kind } = self.entry;
        write!(f, "GID {index}, {gid}, {kind}: {}", self.why)
    }
}

/// Why no address of a port can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NoGid {
    /// There is none.
    Empty,
    /// There is none at the place that was asked for.
    NotThere(u32),
}

impl fmt::Display for NoGid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the port has no address: give its network interface one"),
            Self::NotThere(index) => {
                write!(f, "the port has no GID {index}: TOWLINE_VERBS_GID_INDEX names another one")
            }
        }
    }
}

impl std::error::Error for NoGid {}

/// Chooses one of a port's addresses: the one that was asked for, if any; with InfiniBand the first; else RoCE v2 before v1, as
/// that can be routed, and IPv4 before IPv6 before addresses of the segment alone.
///
/// # Errors
/// [`NoGid`] says what is missing.
pub fn choose_gid(table: &[Entry], asked: Option<u32>) -> Result<Choice, NoGid> {
    let usable = |entry: &&Entry| !entry.gid.is_zero() && !entry.gid.is_multicast();
    if let Some(index) = asked {
        let entry = table.iter().filter(usable).find(|entry| entry.index == index).ok_or(NoGid::NotThere(index))?;
        return Ok(Choice { entry: *entry, why: "it was asked for" });
    }
    let rank = |entry: &Entry| match (entry.kind, entry.gid) {
        (Kind::InfiniBand, _) => (0, "the port's first"),
        (Kind::RoceV2, gid) if gid.is_ipv4() => (1, "can be routed, by IPv4"),
        (Kind::RoceV2, gid) if !gid.is_link_local() => (2, "can be routed, by IPv6; there is none of IPv4"),
        (Kind::RoceV2, _) => (3, "good on this segment alone; there is none that can be routed"),
        (Kind::RoceV1, gid) if gid.is_ipv4() => (4, "cannot be routed; there is none of RoCE v2"),
        (Kind::RoceV1, gid) if !gid.is_link_local() => (5, "cannot be routed; there is none of RoCE v2 nor IPv4"),
        (Kind::RoceV1, _) => (6, "the only kind that there is"),
    };
    let best = table.iter().filter(usable).min_by_key(|entry| (rank(entry).0, entry.index)).ok_or(NoGid::Empty)?;
    Ok(Choice { entry: *best, why: rank(best).1 })
}

/// What ports have in common that can reach each other, in an order that is the same on all hosts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Network {
    kind: u8,
    is_ipv6: bool,
    subnet: [u8; 8],
}

impl Network {
    fn of(kind: Kind, gid: Gid) -> Self {
        let (kind, is_ipv6, subnet) = match kind {
            Kind::InfiniBand => (0, false, gid.subnet()),
            Kind::RoceV2 => (1, !gid.is_ipv4(), [0; 8]),
            Kind::RoceV1 => (2, !gid.is_ipv4(), [0; 8]),
        };
        Self { kind, is_ipv6, subnet }
    }
}

/// Chooses one of several ports, given by name and addresses, and one of its addresses. Ports without one that can be used are
/// passed over. Where not all of them can reach each other, links take turns on the networks, so that links of one number, which
/// are to meet, are on the same one wherever hosts have the same ones; `turn` chooses among the ports of that.
///
/// # Errors
/// Of each port, why it cannot be used.
pub fn choose_port(
    ports: &[(&str, &[Entry])],
    asked: Option<u32>,
    link: u8,
    turn: u32,
) -> Result<(usize, Choice), Vec<String>> {
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

/// Whether packets from one address can get to a peer's.
///
/// # Errors
/// [`Unreachable::NoNetwork`], and the reason for people.
pub fn way(own: &Entry, card: &Card) -> Result<(), (Unreachable, &'static str)> {
    if Network::of(own.kind, own.gid) == Network::of(card.kind, card.gid) {
        return Ok(());
    }
    let why = match (own.kind, card.kind) {
        (Kind::InfiniBand, Kind::InfiniBand) => "it is in another InfiniBand subnet",
        (Kind::InfiniBand, _) | (_, Kind::InfiniBand) => "one end is InfiniBand, the other one Ethernet",
        (one, other) if one != other => "one end speaks RoCE v1, the other one RoCE v2",
        _ => "one end has an address of IPv4, the other one of IPv6",
    };
    Err((Unreachable::NoNetwork, why))
}

/// A port as `TOWLINE_VERBS_DEVICES` names it: a device, of which all ports are meant, or with a port behind a colon.
pub fn names(list: &[String], device: &str, port: u8) -> bool {
    list.is_empty()
        || list.iter().any(|name| match name.rsplit_once(':') {
            Some((name, number)) => name == device && number.parse() == Ok(port),
            None => name == device,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Gid = Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 1]);
    const V4: Gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1]);
    const V6: Gid = Gid([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);

    fn table(entries: &[(Gid, Kind)]) -> Vec<Entry> {
        let entry = |(index, (gid, kind)): (usize, &(Gid, Kind))| Entry { index: index as u32, gid: *gid, kind: *kind };
        entries.iter().enumerate().map(entry).collect()
    }

    #[test]
    fn of_a_ports_addresses_the_one_that_leads_farthest_is_chosen() {
        use Kind::{InfiniBand, RoceV1, RoceV2};
        // As mlx5 lists them: each address once for v1, once for v2.
        let all = [(LOCAL, RoceV1), (LOCAL, RoceV2), (V6, RoceV1), (V6, RoceV2), (V4, RoceV1), (V4, RoceV2)];
        let mut left = all.to_vec();
        for index in [5, 3, 1, 4, 2, 0] {
            let choice = choose_gid(&table(&left), None).unwrap();
            assert_eq!((choice.entry.index, choice.entry.gid), (index, all[index as usize].0), "{choice}");
            left[index as usize].0 = Gid([0; 16]); // a place that is not in use
        }
        assert_eq!(choose_gid(&table(&left), None), Err(NoGid::Empty));
        let infiniband = table(&[(LOCAL, InfiniBand), (V6, InfiniBand)]);
        assert_eq!(choose_gid(&infiniband, None).unwrap().entry.index, 0);
    }

    #[test]
    fn a_reason_is_given_in_words() {
        let choice = choose_gid(&table(&[(LOCAL, Kind::RoceV1), (V4, Kind::RoceV2)]), None).unwrap();
        assert_eq!(choice.to_string(), "GID 1, ::ffff:10.0.0.1, RoCE v2: can be routed, by IPv4");
    }

    #[test]
    fn an_address_that_was_asked_for_is_taken_or_named() {
        let table = table(&[(LOCAL, Kind::RoceV1), (Gid([0; 16]), Kind::RoceV2), (V4, Kind::RoceV2)]);
        assert_eq!(choose_gid(&table, Some(0)).unwrap().entry, table[0]);
        for missing in [1, 3] {
            let why = choose_gid(&table, Some(missing)).unwrap_err();
            assert_eq!(why, NoGid::NotThere(missing));
            assert!(why.to_string().contains(&format!("GID {missing}")), "{why}");
        }
    }

    #[test]
    fn a_port_without_an_address_leaves_its_turn_to_the_next() {
        let (none, one, other) =
            (table(&[]), table(&[(V4, Kind::RoceV2)]), table(&[(V4, Kind::RoceV1), (V4, Kind::RoceV2)]));
        let ports = [("a:1", &none[..]), ("b:1", &one), ("c:1", &other)];
        let chosen = |asked, turn| choose_port(&ports, asked, 0, turn).map(|(at, choice)| (at, choice.entry.index));
        assert_eq!([0, 1, 2, 3].map(|turn| chosen(None, turn)), [Ok((1, 0)), Ok((2, 1)), Ok((1, 0)), Ok((2, 1))]);
        assert_eq!(chosen(Some(1), 0), Ok((2, 1)), "the others have none there");
        let why = chosen(Some(7), 0).unwrap_err();
        assert_eq!(why.len(), 3);
        assert!(why[0].starts_with("a:1: the port has no GID 7"), "{why:?}");
        assert_eq!(choose_port(&[], None, 0, 0), Err(vec![]));
    }

    #[test]
    fn links_of_one_number_are_on_one_network() {
        use Kind::{InfiniBand, RoceV2};
        let (left, right, ethernet) =
            (table(&[(LOCAL, InfiniBand)]), table(&[(V6, InfiniBand)]), table(&[(V4, RoceV2)]));
        // Two hosts that name them in unlike orders.
        let one = [("a:1", &ethernet[..]), ("b:1", &left), ("b:2", &right), ("c:1", &left)];
        let other = [("a:1", &right[..]), ("b:1", &left), ("b:2", &left), ("c:1", &ethernet)];
        let gid = |ports, link, turn| choose_port(ports, None, link, turn).unwrap().1.entry.gid;
        for link in 0..6 {
            for (here, there) in [(0, 0), (0, 1), (1, 0), (5, 7)] {
                let (here, there) = (gid(&one, link, here), gid(&other, link, there));
                assert_eq!(here, there, "link {link}");
            }
        }
        // Of a host's ranks, three links each: InfiniBand's subnets in their order, then Ethernet.
        let used =
            |rank: u32| [0, 1, 2].map(|link| choose_port(&one, None, link, rank * 3 + u32::from(link)).unwrap().0);
        assert_eq!([0, 1, 2].map(used), [[2, 1, 0], [2, 3, 0], [2, 1, 0]], "ranks share the ports of a network");
    }

    #[test]
    fn ends_that_cannot_talk_are_told_why() {
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
        let from = |kind, gid| Entry { index: 0, gid, kind };
        use Kind::{InfiniBand, RoceV1, RoceV2};
        for (kind, gid, other, there) in
            [(RoceV2, V4, RoceV2, V4), (RoceV1, LOCAL, RoceV1, V6), (InfiniBand, LOCAL, InfiniBand, LOCAL)]
        {
            assert_eq!(way(&from(kind, gid), &card(other, there)), Ok(()));
        }
        for (kind, gid, other, there, word) in [
            (RoceV2, V4, RoceV1, V4, "RoCE v1"),
            (RoceV2, V4, RoceV2, V6, "IPv6"),
            (RoceV2, V4, InfiniBand, V4, "Ethernet"),
            (InfiniBand, LOCAL, InfiniBand, V6, "subnet"),
        ] {
            let (answer, why) = way(&from(kind, gid), &card(other, there)).unwrap_err();
            assert_eq!(answer, Unreachable::NoNetwork);
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn mtus_have_the_numbers_of_verbs() {
        assert_eq!([1, 2, 3, 4, 5].map(|number| Mtu::of(number).unwrap().bytes()), [256, 512, 1024, 2048, 4096]);
        assert_eq!((Mtu::of(0), Mtu::of(6)), (None, None));
        assert_eq!(Mtu::within(1500), Some(Mtu::Bytes1024));
        assert_eq!((Mtu::within(255), Mtu::within(1 << 20)), (None, Some(Mtu::Bytes4096)));
    }

    #[test]
    fn ports_are_named_by_device_or_one_by_one() {
        let list = ["mlx5_0:2".to_string(), "rxe1".to_string()];
        let named = [("mlx5_0", 1), ("mlx5_0", 2), ("rxe1", 1), ("rxe1", 2), ("rxe", 1)];
        assert_eq!(named.map(|(device, port)| names(&list, device, port)), [false, true, true, true, false]);
        assert!(names(&[], "anything", 3));
    }
}
