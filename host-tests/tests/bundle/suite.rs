//! The rail kit over bundles of two links.

use towline_core::rail::LINKED_HEAD;
use towline_core::time::Instant;
use towline_host_tests::kit::mesh::Setup;
use towline_host_tests::rail_suite;
use towline_host_tests::random::Random;
use towline_host_tests::sim::network::Net;
use towline_host_tests::sim::network::faults::{Faults, RailParams};

use crate::setup::{TestBundle, bundle};

/// Nanoseconds between two polls.
const STEP: u64 = 1000;

struct Simulated {
    params: RailParams,
    faults: Faults,
    now: u64,
}

impl Setup for Simulated {
    type Rail = TestBundle;

    fn rails(&mut self, count: usize) -> Vec<TestBundle> {
        let net = Net::new(count as u32, vec![self.params; 2], self.faults.clone(), Random::new(1));
        (0..count as u32).map(|node| bundle(&net, node)).collect()
    }

    fn leave(&mut self, rail: TestBundle) -> bool {
        rail.into_links().into_iter().for_each(|link| link.into_raw().leave());
        true
    }

    fn now(&mut self) -> Instant {
        self.now += STEP;
        Instant::from_nanos(self.now)
    }

    fn longest_header(&self) -> usize {
        LINKED_HEAD
    }
}

/// The rails below are reliable, but bodies arrive late and are left in place.
mod over_two_calm_networks {
    use super::*;
    rail_suite!(Simulated {
        params: RailParams::default(),
        faults: Faults { late_body: 400, in_place: 500, staged: 300, ..Faults::default() },
        now: 0
    });
}

/// The rails below lose, duplicate, corrupt, reorder and refuse frames.
mod over_two_bad_networks {
    use super::*;
    rail_suite!(Simulated {
        params: RailParams {
            slots: 8,
            frames_kept: 3,
            eager_limit: 100,
            rendezvous_eager_limit: 64,
            ..RailParams::default()
        },
        faults: Faults {
            drop: 50,
            duplicate: 50,
            corrupt: 50,
            jitter: 5000,
            busy: 100,
            busy_for: 500,
            late_body: 300,
            in_place: 500,
            staged: 300,
            ..Faults::default()
        },
        now: 0
    });
}
