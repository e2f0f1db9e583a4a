//! Random limits of engines, rails and links.

use towline_core::pml::{Config, rdma};
use towline_core::rail::native::OneSided;

use crate::dice::Dice;
use crate::sim::job::Links;
use crate::sim::network::faults::Make;

/// Small limits, and numbers near their wrap.
pub(super) fn config(nodes: u32, window: u32, dice: &mut Dice) -> Config {
    let unexpected = share(dice, nodes);
    let units = if dice.chance(500) { unexpected } else { share(dice, nodes) };
    Config {
        peers: nodes,
        requests: window,
        unexpected,
        units,
        unit_bytes: dice.pick(&[8, 64, 256, 1024, 8192]),
        probes: dice.pick(&[1, 1, 2, 8]),
        seed: 0,
        first_sequence: dice.pick(&[0, (1 << 16) - 9, (1 << 32) - 9, u64::MAX - 40, 1 << 33]),
        rma: towline_core::rma::Config::OFF,
        rdma: rdma::Config::OFF,
    }
}

/// Envelopes or units for all peers together: at times fewer than one for each, at times one, at times plenty.
pub(super) fn share(dice: &mut Dice, nodes: u32) -> u32 {
    match dice.below(4) {
        0 => 1,
        1 => nodes,
        _ => nodes * dice.pick(&[2, 3, 8, 64]),
    }
}

/// One to four rails, equal or not.
pub(super) fn makes(dice: &mut Dice) -> Vec<Make> {
    let alike = dice.chance(300);
    let first = make(dice);
    (0..dice.between(1, 4)).map(|_| if alike { first } else { make(dice) }).collect()
}

pub(super) fn make(dice: &mut Dice) -> Make {
    let eager_limit = dice.pick(&[64, 100, 1024, 4096, 16_384]);
    let max_send_size = dice.pick(&[64, 100, 1024, 8192, 65_536]);
    Make {
        latency: dice.pick(&[100, 100, 1000, 30_000]),
        bandwidth: dice.pick(&[100, 1000, 10_000]),
        eager_limit,
        rendezvous_eager_limit: dice.pick(&[0, 10, eager_limit]),
        min_fragment: dice.pick(&[1, max_send_size / 2, max_send_size]),
        max_send_size,
        slots: dice.pick(&[1, 2, 4, 16, 64]),
        frames_kept: dice.pick(&[1, 1, 2, 8]),
        datagrams: false,
        device: OneSided::NONE,
    }
}

/// Links of all sizes, the smallest among them.
pub(super) fn links(nodes: u32, dice: &mut Dice) -> Links {
    let window = dice.pick(&[4, 8, 32, 256]);
    Links {
        usual: false,
        dead_after: dice.pick(&[20_000_000, 100_000_000, 1_000_000_000]),
        least_timeout: dice.pick(&[100_000, 400_000]),
        ack_delay: dice.pick(&[0, 1000, 25_000]),
        window,
        slots: dice.pick(&[1, 2, 8, window * nodes]),
        deliveries: dice.pick(&[1, 2, 8, 64]),
        first_number: dice.pick(&[0, (1 << 16) - 3, (1 << 32) - 5, 1 << 40]),
        greetings: 2,
        patient: false,
    }
}

/// Rails that links can be put on: some of them lossy, and none with frames too short for a header of theirs.
pub(super) fn linkable(makes: &mut [Make], dice: &mut Dice) {
    for make in makes {
        make.datagrams = dice.chance(700);
        make.eager_limit = make.eager_limit.max(128);
        make.max_send_size = make.max_send_size.max(128);
    }
}
