//! Input to rails and the engine as cards of peers, and lists of interfaces.

use std::cell::RefCell;
use std::net::IpAddr;

use towline_core::arena::Arena;
use towline_core::link::{self, Crc32c, Link};
use towline_core::pml::{Config, Pml};
use towline_core::rail::bundle::{self, Bundle};
use towline_core::rail::loopback::{self, Hub};
use towline_core::rail::{FullRail, Peer, Rail};
use towline_net::JobKey;
use towline_net::interfaces::{Filter, same_network};

const PEER: Peer = Peer(1);
const CONFIG: Config = Config {
    peers: 2,
    requests: 4,
    unexpected: 4,
    units: 4,
    unit_bytes: 64,
    probes: 1,
    seed: 7,
    first_sequence: u32::MAX as u64 - 5,
    rma: towline_core::rma::Config::OFF,
    rdma: towline_core::pml::rdma::Config::OFF,
};

/// The first byte of inputs that are cards of bundles.
const OF_BUNDLE: u8 = 0xff;

/// Runs one input twice: as a card of its own, and as changes to a genuine card. Its first byte chooses the parser. The
/// genuine card must still be accepted afterwards.
pub fn run(data: &[u8]) {
    let Some((parser, rest)) = data.split_first() else { return };
    match parser % 4 {
        _ if *parser == OF_BUNDLE => BUNDLES.with_borrow_mut(|rails| rail(rails, rest)),
        0 => SM.with_borrow_mut(|rails| rail(rails, rest)),
        1 => TCP.with_borrow_mut(|rails| rail(rails, rest)),
        2 => engine(rest),
        _ => lists(rest),
    }
}

thread_local! {
    static SM: RefCell<[towline_sm::Rail; 2]> = RefCell::new([0, 1].map(|rank| {
        let job = u64::from(std::process::id());
        towline_sm::Rail::open(towline_sm::Config::new(job, rank, 2)).expect("there is memory for two rails")
    }));
    static TCP: RefCell<[towline_tcp::Rail; 2]> = RefCell::new([0, 1].map(|rank| {
        let mut config = towline_tcp::Config::new(7, rank, JobKey::new([0x5a; 32]));
        config.filter.include = vec!["lo".into()];
        towline_tcp::Rail::new(config).expect("this host has a loopback")
    }));
    // They are never dropped, since the memory that they use is not either: a check for leaks finds it by them.
    static BUNDLES: RefCell<&'static mut [TestBundle; 2]> = RefCell::new(Box::leak(Box::new(bundles())));
}

/// Two links to each peer, as one rail.
type TestBundle = Bundle<
    'static,
    Link<'static, loopback::Rail<'static>, Crc32c>,
    Vec<Link<'static, loopback::Rail<'static>, Crc32c>>,
>;

/// Two bundles over two meshes. Their memory stays until the process ends.
fn bundles() -> [TestBundle; 2] {
    let hubs = [0, 1].map(|_| {
        let memory = vec![0; Hub::cost(2, 4, 6000)].leak();
        &*Box::leak(Box::new(Hub::new(&mut Arena::new(memory), 2, 4, 6000).expect("cost is enough")))
    });
    [0, 1].map(|end| {
        let links = [0, 1].map(|at| {
            let raw = hubs[at].rail(end).expect("the mesh has this end");
            let config = link::Config::new(at as u8, 500 + u64::from(end), raw.attributes());
            let memory = vec![0; config.bytes(&raw)].leak();
            Link::new(raw, Crc32c, config, &mut Arena::new(memory)).expect("the memory is large enough")
        });
        let (links, config) = (Vec::from(links), bundle::Config { peers: 2, deliveries: 8 });
        let memory = vec![0; config.bytes(&links)].leak();
        Bundle::new(links, config, &mut Arena::new(memory)).expect("the memory is large enough")
    })
}

fn rail<R: FullRail>([rail, other]: &mut [R; 2], data: &[u8]) {
    let genuine = other.card().to_vec();
    for card in [data, &changed(&genuine, data)] {
        if let Ok(endpoint) = rail.add_peer(PEER, card) {
            rail.del_peer(endpoint);
        }
    }
    let endpoint = rail.add_peer(PEER, &genuine).expect("a genuine card");
    rail.del_peer(endpoint);
}

fn engine(data: &[u8]) {
    let mut memory = vec![0; Hub::cost(2, 4, 256)];
    let hub = Hub::new(&mut Arena::new(&mut memory), 2, 4, 256).expect("cost is enough");
    let mut memory = vec![0; CONFIG.bytes(&[&Hub::attributes(256)])];
    let end = hub.rail(0).expect("the mesh has this end");
    let mut engine = Pml::new(CONFIG, &mut Arena::new(&mut memory), [end]).expect("the memory is large enough");
    let genuine = engine.params();
    for params in [data, &changed(&genuine, data), &genuine] {
        let added = engine.add_peer(PEER, params, |_, rail| rail.add_peer(PEER, &PEER.0.to_le_bytes()));
        assert!(added.is_ok() || params != genuine);
        engine.del_peer(PEER);
    }
}

/// A card with some bytes changed: each two bytes of `changes` give the position and the change.
fn changed(card: &[u8], changes: &[u8]) -> Vec<u8> {
    let mut card = card.to_vec();
    for pair in changes.as_chunks::<2>().0 {
        if let Some(byte) = card.get_mut(usize::from(pair[0])) {
            *byte ^= pair[1];
        }
    }
    card
}

/// Reads the input as lines: two addresses, then the entries of a list of interfaces.
fn lists(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let mut address = || lines.next().and_then(|line| line.parse::<IpAddr>().ok());
    let (Some(one), Some(other)) = (address(), address()) else { return };
    for prefix in [0, 1, 7, 8, 9, 24, 31, 32, 33, 64, 127, 128, 129, 255] {
        let equal = match (one, other) {
            (IpAddr::V4(one), IpAddr::V4(other)) => {
                (u32::from(one) ^ u32::from(other)).leading_zeros() >= prefix.min(32)
            }
            (IpAddr::V6(one), IpAddr::V6(other)) => {
                (u128::from(one) ^ u128::from(other)).leading_zeros() >= prefix.min(128)
            }
            _ => false,
        };
        assert_eq!(same_network(one, other, prefix as u8), equal, "{one} {other} {prefix}");
    }
    let entries: Vec<String> = lines.map(Into::into).collect();
    let filter = Filter { include: Vec::new(), exclude: Some(entries.clone()) };
    let excluded = filter.verdict("eth0", one).is_err();
    let filter = Filter { include: entries.clone(), exclude: None };
    let included = filter.verdict("eth0", one).is_ok();
    let link_local = matches!(one, IpAddr::V6(one) if one.is_unicast_link_local());
    assert!(link_local || entries.is_empty() || included == excluded, "{one} in {entries:?}");
}
