//! Random limits of engines, rails and links.

use towline_core::pml::{Config, rdma};
use towline_core::rail::native::OneSided;

use crate::random::Random;
use crate::sim::job::LinkParams;
use crate::sim::network::faults::RailParams;

/// Small limits, and numbers near their wrap.
pub(super) fn config(nodes: u32, window: u32, random: &mut Random) -> Config {
    let unexpected = share(random, nodes);
    let units = if random.chance(500) { unexpected } else { share(random, nodes) };
    Config {
        peers: nodes,
        requests: window,
        unexpected,
        units,
        unit_bytes: random.pick(&[8, 64, 256, 1024, 8192]),
        probes: random.pick(&[1, 1, 2, 8]),
        seed: 0,
        first_sequence: random.pick(&[0, (1 << 16) - 9, (1 << 32) - 9, u64::MAX - 40, 1 << 33]),
        rma: towline_core::rma::Config::OFF,
        rdma: rdma::Config::OFF,
    }
}

/// A number of envelopes or units for all peers together: fewer than one for each, one for each, or plenty.
pub(super) fn share(random: &mut Random, nodes: u32) -> u32 {
    match random.below(4) {
        0 => 1,
        1 => nodes,
        _ => nodes * random.pick(&[2, 3, 8, 64]),
    }
}

/// One to four rails, equal or not.
pub(super) fn random_rails(random: &mut Random) -> Vec<RailParams> {
    let alike = random.chance(300);
    let first = random_rail(random);
    (0..random.between(1, 4)).map(|_| if alike { first } else { random_rail(random) }).collect()
}

pub(super) fn random_rail(random: &mut Random) -> RailParams {
    let eager_limit = random.pick(&[64, 100, 1024, 4096, 16_384]);
    let max_send_size = random.pick(&[64, 100, 1024, 8192, 65_536]);
    RailParams {
        latency: random.pick(&[100, 100, 1000, 30_000]),
        bandwidth: random.pick(&[100, 1000, 10_000]),
        eager_limit,
        rendezvous_eager_limit: random.pick(&[0, 10, eager_limit]),
        min_fragment: random.pick(&[1, max_send_size / 2, max_send_size]),
        max_send_size,
        slots: random.pick(&[1, 2, 4, 16, 64]),
        frames_kept: random.pick(&[1, 1, 2, 8]),
        datagrams: false,
        device: OneSided::NONE,
    }
}

/// Links of all sizes, the smallest among them.
pub(super) fn links(nodes: u32, random: &mut Random) -> LinkParams {
    let window = random.pick(&[4, 8, 32, 256]);
    LinkParams {
        defaults: false,
        dead_after: random.pick(&[20_000_000, 100_000_000, 1_000_000_000]),
        least_timeout: random.pick(&[100_000, 400_000]),
        ack_delay: random.pick(&[0, 1000, 25_000]),
        window,
        slots: random.pick(&[1, 2, 8, window * nodes]),
        deliveries: random.pick(&[1, 2, 8, 64]),
        first_number: random.pick(&[0, (1 << 16) - 3, (1 << 32) - 5, 1 << 40]),
        hello_attempts: 2,
        patient: false,
    }
}

/// Adapts rails for links: some are lossy, and all frames have room for a link's header.
pub(super) fn linkable(rail_params: &mut [RailParams], random: &mut Random) {
    for params in rail_params {
        params.datagrams = random.chance(700);
        params.eager_limit = params.eager_limit.max(128);
        params.max_send_size = params.max_send_size.max(128);
    }
}
