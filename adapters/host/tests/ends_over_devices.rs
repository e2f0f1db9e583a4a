//! The end of worlds and workers whose messages DPUs have. The processes are threads.

mod common;
#[path = "../../dpu/tests/common/mod.rs"]
mod devices;

use std::sync::Mutex;

use common::jobs;
use towline::{Builder, JobKey, Place, SetupError, UnmatchedPolicy};
use towline_core::pml::Config;

/// Messages that a device has room for only while they wait to be sent.
const MANY: u32 = 100;

/// Devices with room for few messages that no receive has taken.
fn devices(count: u32) -> devices::Devices {
    let engine =
        Config { peers: count, requests: 272, unexpected: count, units: count, unit_bytes: 512, ..Config::SMALLEST };
    devices::start_many(count, offload::Limits { engine, communicators: 4, messages: 16 })
}

/// A builder of the process with this number.
fn builder(devices: &devices::Devices, number: u32) -> Builder {
    let window = devices.files[number as usize].to_str().unwrap();
    Builder::new().transports("dpu").configure(|config| config.dpu.windows = window.into())
}

/// A worker that ends while the other one receives nothing more. All its sends are complete.
#[test]
fn a_worker_whose_messages_were_not_received_says_so_at_its_end() {
    let devices = devices(2);
    let key = JobKey::random().unwrap();
    let open = |number| {
        let builder = builder(&devices, number).configure(|config| config.finish_timeout_ms = 100);
        builder.open(Place::new(1, key.clone(), number)).unwrap()
    };
    let [sender, receiver] = [0, 1].map(open);
    for worker in [&sender, &receiver] {
        for card in [sender.card(), receiver.card()] {
            worker.add_peer(&card).unwrap();
        }
    }
    let sending = sender.communicator(0, &[0, 1], Some(0)).unwrap();
    let receiving = receiver.communicator(0, &[0, 1], Some(1)).unwrap();
    for tag in 0..MANY {
        sending.send(1, tag, &[1u8; 100]).unwrap();
    }
    receiving.recv(0, 0, &mut [0u8; 100]).unwrap();
    drop(sending);
    let ended = sender.finish();
    assert!(matches!(ended, Err(SetupError::Unsent { .. })), "{ended:?}");
}

/// The barrier at the end has no message from a rank to the third one after it.
#[test]
fn all_messages_have_arrived_when_they_are_counted() {
    let devices = devices(4);
    let counts = Mutex::new([0; 4]);
    jobs(4, |rank, job| {
        let world = builder(&devices, rank).job(job).configure(|config| config.unmatched = UnmatchedPolicy::Error);
        let world = world.build().unwrap();
        for tag in 0..MANY {
            world.send((rank + 3) % 4, tag, &[1u8; 100]).unwrap();
        }
        let ended = world.finish();
        let Err(SetupError::Unmatched(unmatched)) = ended else { panic!("{ended:?}") };
        counts.lock().unwrap()[rank as usize] = unmatched.count;
    });
    assert_eq!(counts.into_inner().unwrap(), [u64::from(MANY); 4]);
}

/// Nobody can receive the messages of a communicator that its members have dropped, but they do not hold the end up.
#[test]
fn messages_of_dropped_communicators_do_not_hold_the_end_up() {
    for is_kept in [false, true] {
        let devices = devices(2);
        let ends = jobs(2, |rank, job| {
            let world = builder(&devices, rank).job(job).build().unwrap();
            let other = world.dup().unwrap();
            if rank == 0 {
                (0..MANY).for_each(|tag| other.send(1, tag, &[1u8; 100]).unwrap());
            }
            world.barrier().unwrap();
            // The sender may have dropped it, or not.
            let _kept = Some(other).filter(|_| rank == 0 && is_kept);
            world.finish()
        });
        assert!(ends.iter().all(Result::is_ok), "{ends:?}");
    }
}
