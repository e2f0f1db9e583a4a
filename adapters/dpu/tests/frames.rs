//! The kits over devices that carry frames: the rail itself, and the engine of the hosts over it.

#[path = "common/wired.rs"]
mod wired;

use offload::Limits;
use towline_core::pml::Config as Engine;
use towline_core::time::Instant;
use towline_dpu::frames::{Config, Frames};
use towline_dpu::{Options, Transport};
use towline_host_tests::kit::mesh::Setup;
use towline_host_tests::{matching_suite, rail_suite};
use wired::Wired;

/// Rails over devices, which a thread runs.
struct Carried {
    config: Config,
    devices: Vec<Wired>,
}

impl Carried {
    fn new(frame_bytes: u32, buffers: u32) -> Self {
        Self { config: Config { frame_bytes, buffers }, devices: Vec::new() }
    }
}

impl Setup for Carried {
    type Rail = Frames;

    fn rails(&mut self, count: usize) -> Vec<Frames> {
        let engine =
            Engine { peers: 16, requests: 256, unexpected: 64, units: 64, unit_bytes: 512, ..Engine::SMALLEST };
        let devices = Wired::start(count, Limits { engine, communicators: 1, messages: 1 });
        let open = |file| Frames::new(Transport::open(file, Options::default()).unwrap(), self.config).unwrap();
        let rails = devices.files.iter().map(|file| open(file)).collect();
        self.devices.push(devices);
        rails
    }

    fn now(&mut self) -> Instant {
        // The thread of the devices shares the processors with the rails.
        std::thread::yield_now();
        Instant::ZERO
    }
}

mod large {
    use super::*;
    rail_suite!(Carried::new(8192, 16));
}

/// Few buffers, which each check fills.
mod small {
    use super::*;
    rail_suite!(Carried::new(200, 4));
}

/// The engine of the hosts matches, and the devices carry its frames.
mod mtl {
    use super::*;
    matching_suite!(Carried::new(4096, 16));
}
