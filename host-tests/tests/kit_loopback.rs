//! The rail kit over the loopback rail.

use towline_core::arena::Arena;
use towline_core::rail::loopback::{Hub, Rail};
use towline_core::time::Instant;
use towline_host_tests::kit::mesh::Setup;
use towline_host_tests::rail_suite;

/// A loopback rail. With few slots every check fills its queues.
struct Loopback {
    slots: u32,
    frame: u32,
}

impl Setup for Loopback {
    type Rail = Rail<'static>;

    fn rails(&mut self, count: usize) -> Vec<Self::Rail> {
        let ends = count as u32;
        let block = vec![0; Hub::cost(ends, self.slots, self.frame)].leak();
        let hub = Hub::new(&mut Arena::new(block), ends, self.slots, self.frame).expect("the memory is large enough");
        let hub: &'static Hub<'static> = Box::leak(Box::new(hub));
        (0..ends).map(|end| hub.rail(end).expect("the hub has an end for each rail")).collect()
    }

    fn leave(&mut self, _: Self::Rail) -> bool {
        false // all ends are of one process
    }

    fn now(&mut self) -> Instant {
        Instant::ZERO
    }
}

mod small {
    use super::*;
    rail_suite!(Loopback { slots: 4, frame: 80 });
}

mod large {
    use super::*;
    rail_suite!(Loopback { slots: 64, frame: 65_536 });
}

/// The suite for matching transports.
mod mtl {
    use super::*;
    towline_host_tests::matching_suite!(Loopback { slots: 16, frame: 4096 });
}

/// The suite for one-sided operations, which are emulated.
mod one_sided {
    use super::*;
    towline_host_tests::one_sided_suite!(Loopback { slots: 16, frame: 4096 });
}
