//! The kits over devices that carry frames: the rail itself, and the engine of the hosts over it.

#[path = "common/wired.rs"]
mod wired;

use offload::Limits;
use towline_core::pml::Config as Engine;
use towline_core::rail::{Endpoint, Event, Lane, Lost, Peer, Rail as _, SendError, Shape};
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

mod unequal {
    use super::*;

    const TAG: u8 = 0x80;
    /// Attempts in a row that find no room, after which there is none until the peer takes frames.
    const FULL: u32 = 20_000;

    /// Gives the rail a frame. Returns whether it took it.
    fn try_send(rail: &mut Frames, to: Endpoint, lane: Lane, byte: u8) -> bool {
        let shape = Shape { tag: TAG, lane, header: 0, len: 512 };
        let ticket = match rail.reserve(to, shape) {
            Ok(mut grant) => {
                grant.write(0, &[byte; 512]);
                grant.finish()
            }
            Err(SendError::Busy) => return false,
            Err(why) => panic!("{why:?}"),
        };
        let _ = rail.commit(ticket);
        true
    }

    /// Polls, and returns the first bytes of the frames that have come.
    fn poll(rail: &mut Frames) -> Vec<u8> {
        std::thread::yield_now();
        let mut came = vec![];
        while let Some(event) = rail.poll(Instant::ZERO) {
            let Event::Frame(frame) = event else { panic!("{event:?}") };
            came.push(frame.head[0]);
            rail.release(frame.id);
        }
        came
    }

    /// Rails that know each other. The endpoints of each are in the order of the others.
    fn introduced(count: usize) -> (Carried, Vec<Frames>) {
        let mut setup = Carried::new(1024, 8);
        let mut rails = setup.rails(count);
        let cards: Vec<_> = rails.iter().map(|rail| rail.card().to_vec()).collect();
        for (own, rail) in rails.iter_mut().enumerate() {
            for (other, card) in (0..).zip(&cards).filter(|(other, _)| *other != own as u32) {
                rail.add_peer(Peer(other), card).unwrap();
            }
        }
        (setup, rails)
    }

    #[test]
    fn the_end_of_a_process_is_told_as_what_it_was() {
        for (fails, expected) in [(false, Lost::Closed), (true, Lost::Broken)] {
            let (_setup, mut rails) = introduced(2);
            let mut other = rails.pop().unwrap();
            let rail = &mut rails[0];
            assert!(try_send(rail, Endpoint(0), Lane::Eager, 7));
            while poll(&mut other).is_empty() {
                poll(rail);
            }
            if fails {
                other.end_as_failure();
            }
            drop(other);
            let why = loop {
                std::thread::yield_now();
                match rail.poll(Instant::ZERO) {
                    Some(Event::Lost(_, why)) => break why,
                    event => assert!(event.is_none(), "{event:?}"),
                }
            };
            assert_eq!(why, expected);
        }
    }

    /// A peer that takes no frames keeps neither all buffers nor all of those for control frames.
    #[test]
    fn a_peer_that_does_not_poll_leaves_buffers_to_others() {
        let (_setup, mut rails) = introduced(3);
        let (silent, awake) = (Endpoint(0), Endpoint(1));
        let [rail, _silent, other] = &mut rails[..] else { panic!() };
        for lane in [Lane::Bulk, Lane::Control] {
            let (mut taken, mut refused) = (0, 0);
            while refused < FULL {
                if try_send(rail, silent, lane, 1) {
                    (taken, refused) = (taken + 1, 0);
                } else {
                    refused += 1;
                    poll(rail);
                }
            }
            assert!(taken > 0, "{lane:?}");
        }
        let mut came = vec![];
        for byte in 0..40 {
            let lane = if byte % 2 == 0 { Lane::Bulk } else { Lane::Control };
            let start = std::time::Instant::now();
            while !try_send(rail, awake, lane, byte) {
                assert!(start.elapsed().as_secs() < 60, "the silent peer has all buffers");
                poll(rail);
                came.extend(poll(other));
            }
        }
        let start = std::time::Instant::now();
        while came.len() < 40 {
            assert!(start.elapsed().as_secs() < 60, "{came:?}");
            poll(rail);
            came.extend(poll(other));
        }
        came.sort_unstable();
        assert!(came.into_iter().eq(0..40));
    }
}

/// The engine of the hosts matches, and the devices carry its frames.
mod mtl {
    use super::*;
    matching_suite!(Carried::new(4096, 16));
}
