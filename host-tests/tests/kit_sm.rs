//! The kits over shared-memory rails in one process.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant as Clock};

use towline_core::time::Instant;
use towline_host_tests::kit::mesh::Setup;
use towline_host_tests::{matching_suite, one_sided_suite, rail_suite};
use towline_sm::{Config, Rail};

struct Shared {
    start: Clock,
    /// By how much the clock of the rails is ahead of the real one.
    ahead: Duration,
    links: usize,
    change: fn(&mut Config),
}

impl Shared {
    fn new(change: fn(&mut Config)) -> Self {
        Self { start: Clock::now(), ahead: Duration::ZERO, links: 1, change }
    }
}

impl Setup for Shared {
    type Rail = Rail;

    fn rails(&mut self, count: usize) -> Vec<Rail> {
        // Every test, and every link of a test, has a job of its own.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let job = u64::from(std::process::id()) << 32 | u64::from(NEXT.fetch_add(1, Ordering::Relaxed)) | 1 << 31;
        let open = |rank| {
            let mut config = Config::new(job, rank, count as u32);
            (self.change)(&mut config);
            Rail::open(config).expect("room in shared memory")
        };
        (0..count as u32).map(open).collect()
    }

    fn links(&self) -> usize {
        self.links
    }

    fn now(&mut self) -> Instant {
        Instant::from_nanos((self.start.elapsed() + self.ahead).as_nanos() as u64)
    }

    fn leave(&mut self, rail: Rail) -> bool {
        drop(rail);
        self.ahead += Duration::from_secs(60); // the rail checks now and then whether its peers are alive
        true
    }
}

mod defaults {
    use super::*;
    rail_suite!(Shared::new(|_| {}));
}

/// Rings so small that every check fills them.
fn small(config: &mut Config) {
    config.eager_ring_bytes = 4096;
    config.eager_limit_bytes = 300;
    config.bulk_ring_bytes = 8192;
    config.bulk_limit_bytes = 900;
    config.frames_kept = 2;
}

mod tight {
    use super::*;
    rail_suite!(Shared::new(small));
}

/// All bodies that need not be copied use the single copy.
mod mtl {
    use super::*;
    matching_suite!(Shared::new(|config| (config.single_copy_bytes, config.single_copy_limit_bytes) = (1, 1 << 30)));
}

mod mtl_copied {
    use super::*;
    matching_suite!(Shared::new(|config| config.single_copy_bytes = 0));
}

mod mtl_tight {
    use super::*;
    matching_suite!(Shared { links: 2, ..Shared::new(small) });
}

/// One-sided operations on memory that is not a shared window: long bodies use the single copy.
mod one_sided {
    use super::*;
    one_sided_suite!(Shared::new(|_| {}));
}

/// Bodies longer than a frame use the single copy.
mod one_sided_single {
    use super::*;
    one_sided_suite!(Shared::new(|config| {
        small(config);
        config.single_copy_bytes = 1;
    }));
}

mod one_sided_copied {
    use super::*;
    one_sided_suite!(Shared::new(|config| {
        small(config);
        config.single_copy_bytes = 0;
    }));
}
