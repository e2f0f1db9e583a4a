//! The suite for matching transports over devices, which match the messages of the nodes in the place of their engines.

mod common;

use std::path::PathBuf;

use common::{Devices, ENGINE, start_many};
use offload::Limits;
use towline_core::pml::Config;
use towline_core::time::Instant;
use towline_dpu::{Matching, Options, Transport};
use towline_host_tests::kit::loopback::Loopback;
use towline_host_tests::kit::mesh::Setup;

/// Nodes with devices. Their rails carry nothing.
struct Offloaded {
    rails: Loopback,
    devices: Option<Devices>,
    /// Whether the devices read and write messages where they lie.
    is_direct: bool,
}

impl Offloaded {
    fn new(is_direct: bool) -> Self {
        Self { rails: Loopback { slots: 16, frame: 4096 }, devices: None, is_direct }
    }
}

impl Setup for Offloaded {
    type Rail = <Loopback as Setup>::Rail;

    fn rails(&mut self, count: usize) -> Vec<Self::Rail> {
        self.rails.rails(count)
    }

    fn devices(&mut self, count: usize) -> Vec<Matching> {
        let engine = Config { peers: count as u32, requests: 1024, ..ENGINE };
        let limits = Limits { engine, communicators: 4, messages: 4 };
        let devices = self.devices.insert(start_many(count as u32, limits));
        let open = |file: &PathBuf| {
            // A shorter standard send is complete when it was copied.
            let options = Options { direct_from: 1025, ..Options::default() };
            let mut transport = Transport::open(file, options).unwrap();
            assert!(!self.is_direct || transport.reach_memory() == Ok(true));
            Matching::new(transport)
        };
        devices.files.iter().map(open).collect()
    }

    fn now(&mut self) -> Instant {
        // The thread of the devices shares the processors with the nodes.
        std::thread::yield_now();
        self.rails.now()
    }
}

mod copied {
    use super::Offloaded;
    towline_host_tests::matching_suite!(Offloaded::new(false), by a device);
}

mod direct {
    use super::Offloaded;
    towline_host_tests::matching_suite!(Offloaded::new(true), by a device);
}
