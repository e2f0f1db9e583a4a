//! The suite for matching transports over DPUs, which match the messages of the nodes in the place of their engines.

use std::sync::{Mutex, MutexGuard, PoisonError};

use towline_core::time::Instant;
use towline_dpu::{Matching, Options, Transport};
use towline_host_tests::kit::loopback::Loopback;
use towline_host_tests::kit::mesh::Setup;

use crate::processes::{Dpus, Protocol};

/// Most nodes of a check.
const NODES: usize = 4;

/// The DPUs. All checks use them, one after the other.
static DPUS: Mutex<Option<Dpus>> = Mutex::new(None);

/// Ends them, and removes their files. No static is dropped at the end of a process.
extern "C" fn end() {
    *DPUS.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

fn start() -> Dpus {
    // SAFETY: the function may be called at the end of the process: no test runs any more, and it uses nothing of the threads' own.
    assert_eq!(unsafe { libc::atexit(end) }, 0);
    Dpus::start("kit", NODES, Protocol::Udp)
}

/// Nodes with DPUs. Their rails carry nothing.
struct Offloaded {
    rails: Loopback,
    dpus: MutexGuard<'static, Option<Dpus>>,
}

impl Offloaded {
    fn new() -> Self {
        let dpus = DPUS.lock().unwrap_or_else(PoisonError::into_inner);
        Self { rails: Loopback { slots: 16, frame: 4096 }, dpus }
    }
}

impl Setup for Offloaded {
    type Rail = <Loopback as Setup>::Rail;

    fn rails(&mut self, count: usize) -> Vec<Self::Rail> {
        self.rails.rails(count)
    }

    fn devices(&mut self, count: usize) -> Vec<Matching> {
        assert!(count <= NODES);
        let dpus = self.dpus.get_or_insert_with(start);
        let open = |number| {
            let (file, offset) = dpus.place(number);
            // A shorter standard send is complete when it was copied.
            let options = Options { direct_from: 1025, ..Options::default() };
            let mut transport = Transport::open_at(&file, offset, options).unwrap();
            // A process reaches the memory of its host. The other boards say that they do not, and the host copies.
            assert_eq!(transport.reach_memory(), Ok(dpus.reach_hosts()));
            Matching::new(transport)
        };
        (0..count).map(open).collect()
    }

    fn now(&mut self) -> Instant {
        // The emulator, and other processes, share the processors with the nodes.
        std::thread::yield_now();
        self.rails.now()
    }
}

towline_host_tests::matching_suite!(Offloaded::new(), by the firmware);
