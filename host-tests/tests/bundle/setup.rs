//! Bundles over a simulated network.

use towline_core::arena::Arena;
use towline_core::link::{self, Crc32c, Link};
use towline_core::rail::Rail as _;
use towline_core::rail::bundle::{self, Bundle};
use towline_core::time::Duration;
use towline_host_tests::sim::network::{Net, SimRail};

/// Two links of this node to each peer, as one rail.
pub type TestBundle = Bundle<'static, TestLink, Vec<TestLink>>;
/// One of the links.
pub type TestLink = Link<'static, SimRail, Crc32c>;

/// The bundle of a node over all its rails, with time-outs that fit the tests' limits.
pub fn bundle(net: &Net, node: u32) -> TestBundle {
    let links: Vec<_> = net.rails(node).into_iter().enumerate().map(|(at, raw)| link(raw, node, at as u8)).collect();
    let config = bundle::Config { peers: 4, deliveries: 16 };
    let block = vec![0; config.bytes(&links)].leak();
    Bundle::new(links, config, &mut Arena::new(block)).expect("the memory is large enough")
}

fn link(raw: SimRail, node: u32, at: u8) -> TestLink {
    let config = link::Config {
        peers: 4,
        slots: 32,
        control_slots: 4,
        window: 64,
        deliveries: 8,
        first_number: u64::from(u16::MAX) - 3,
        least_timeout: Duration::from_nanos(200_000),
        initial_timeout: Duration::from_nanos(500_000),
        most_timeout: Duration::from_millis(3),
        probe: Duration::from_nanos(200_000),
        most_probe: Duration::from_millis(2),
        ..link::Config::new(at * 10 + node as u8, 77 + u64::from(node), raw.attributes())
    };
    // Links of datagrams notice an outage only by silence.
    let config = if raw.attributes().capabilities.contains(towline_core::rail::Capabilities::NEED_ACK) {
        link::Config { dead_after: Duration::from_millis(20), heartbeat: Duration::from_millis(2), ..config }
    } else {
        config
    };
    let block = vec![0; config.bytes(&raw)].leak();
    Link::new(raw, Crc32c, config, &mut Arena::new(block)).expect("the memory is large enough")
}
