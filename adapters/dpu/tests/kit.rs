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
}

impl Offloaded {
    fn new() -> Self {
        Self { rails: Loopback { slots: 16, frame: 4096 }, devices: None }
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
        let open = |file: &PathBuf| Matching::new(Transport::open(file, Options::default()).unwrap());
        devices.files.iter().map(open).collect()
    }

    fn now(&mut self) -> Instant {
        // The thread of the devices shares the processors with the nodes.
        std::thread::yield_now();
        self.rails.now()
    }
}

towline_host_tests::matching_suite!(Offloaded::new(), by a device);
