//! The rail kit over the simulated rail: fault-free, and with all that a reliable rail may do.

use towline_core::time::Instant;
use towline_host_tests::dice::Dice;
use towline_host_tests::kit::bench::Setup;
use towline_host_tests::rail_suite;
use towline_host_tests::sim::faults::{Faults, Make};
use towline_host_tests::sim::net::Net;
use towline_host_tests::sim::rail::SimRail;

struct Simulated {
    make: Make,
    faults: Faults,
    now: u64,
}

impl Setup for Simulated {
    type Rail = SimRail;

    fn rails(&mut self, count: usize) -> Vec<SimRail> {
        let net = Net::new(count as u32, vec![self.make], self.faults.clone(), Dice::new(1));
        (0..count as u32).map(|node| net.rails(node).remove(0)).collect()
    }

    fn now(&mut self) -> Instant {
        self.now += 100;
        Instant::from_nanos(self.now)
    }
}

fn plain() -> Simulated {
    Simulated { make: Make::default(), faults: Faults::default(), now: 0 }
}

fn rough() -> Simulated {
    let make = Make { slots: 3, frames_kept: 3, eager_limit: 100, rendezvous_eager_limit: 64, ..Make::default() };
    let faults = Faults {
        busy: 100,
        busy_for: 500,
        jitter: 5000,
        late_body: 400,
        in_place: 500,
        staged: 300,
        ..Faults::default()
    };
    Simulated { make, faults, now: 0 }
}

mod calm {
    use super::*;
    rail_suite!(plain());
}

mod faulty {
    use super::*;
    rail_suite!(rough());
}

/// Matching transports over rails that refuse, reorder and deliver late.
mod mtl {
    use super::*;
    towline_host_tests::mtl_suite!(Simulated { make: Make { frames_kept: 2, ..Make::default() }, ..rough() });
}
