//! The rail kit over links: on the loopback rail, and on simulated rails with all faults.

use towline_core::arena::Arena;
use towline_core::link::{Config, Crc32c, Link};
use towline_core::rail::loopback::{self, Hub};
use towline_core::rail::{FullRail, LINKED_HEAD};
use towline_core::time::{Duration, Instant};
use towline_host_tests::kit::mesh::Setup;
use towline_host_tests::rail_suite;
use towline_host_tests::random::Random;
use towline_host_tests::sim::network::Net;
use towline_host_tests::sim::network::SimRail;
use towline_host_tests::sim::network::faults::{Faults, RailParams};

/// Nanoseconds between two polls.
const STEP: u64 = 1000;

/// A link over a raw rail, with time-outs that fit the kit's limits.
fn link<R: FullRail>(raw: R, number: u8) -> Link<'static, R, Crc32c> {
    let config = Config {
        peers: 4,
        slots: 16,
        control_slots: 4,
        window: 64,
        deliveries: 8,
        first_number: u64::from(u16::MAX) - 3,
        least_timeout: Duration::from_nanos(200_000),
        initial_timeout: Duration::from_nanos(500_000),
        most_timeout: Duration::from_millis(3),
        ..Config::new(number, 77 + u64::from(number), raw.attributes())
    };
    let block = vec![0; config.bytes(&raw)].leak();
    Link::new(raw, Crc32c, config, &mut Arena::new(block)).expect("the memory is large enough")
}

struct Loopback {
    slots: u32,
    frame: u32,
    now: u64,
}

impl Setup for Loopback {
    type Rail = Link<'static, loopback::Rail<'static>, Crc32c>;

    fn rails(&mut self, count: usize) -> Vec<Self::Rail> {
        let ends = count as u32;
        let block = vec![0; Hub::cost(ends, self.slots, self.frame)].leak();
        let hub = Hub::new(&mut Arena::new(block), ends, self.slots, self.frame).expect("the memory is large enough");
        let hub: &'static Hub<'static> = Box::leak(Box::new(hub));
        (0..ends).map(|end| link(hub.rail(end).expect("the hub has an end for each rail"), end as u8)).collect()
    }

    fn leave(&mut self, _: Self::Rail) -> bool {
        false // all ends are of one process
    }

    fn now(&mut self) -> Instant {
        self.now += STEP;
        Instant::from_nanos(self.now)
    }

    fn longest_header(&self) -> usize {
        LINKED_HEAD
    }
}

struct Simulated {
    params: RailParams,
    faults: Faults,
    now: u64,
}

impl Setup for Simulated {
    type Rail = Link<'static, SimRail, Crc32c>;

    fn rails(&mut self, count: usize) -> Vec<Self::Rail> {
        let net = Net::new(count as u32, vec![self.params], self.faults.clone(), Random::new(1));
        (0..count as u32).map(|node| link(net.rails(node).remove(0), node as u8)).collect()
    }

    fn leave(&mut self, rail: Self::Rail) -> bool {
        rail.into_raw().leave();
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

mod over_loopback {
    use super::*;
    rail_suite!(Loopback { slots: 8, frame: 96, now: 0 });
}

mod over_a_long_loopback {
    use super::*;
    rail_suite!(Loopback { slots: 64, frame: 65_536, now: 0 });
}

/// The rail below is reliable, but bodies arrive late and are left in place.
mod over_a_calm_network {
    use super::*;
    rail_suite!(Simulated {
        params: RailParams::default(),
        faults: Faults { late_body: 400, in_place: 500, staged: 300, ..Faults::default() },
        now: 0
    });
}

/// The rail below loses, duplicates, corrupts, reorders and refuses frames.
mod over_a_bad_network {
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
