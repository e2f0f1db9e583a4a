//! Loopback rails under test.

use towline_core::arena::Arena;
use towline_core::rail::loopback::{Hub, Rail};
use towline_core::time::Instant;

use super::mesh::Setup;

/// A loopback rail. With few slots every check fills its queues.
pub struct Loopback {
    /// Slots of each queue.
    pub slots: u32,
    /// Bytes of the longest frame.
    pub frame: u32,
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
