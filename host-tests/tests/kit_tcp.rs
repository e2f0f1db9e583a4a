//! The rail kit over TCP rails of one process.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant as Clock;

use towline_core::time::Instant;
use towline_host_tests::kit::bench::Setup;
use towline_host_tests::rail_suite;
use towline_tcp::{Config, JobKey, Rail};

struct Tcp {
    start: Clock,
    change: fn(&mut Config),
}

impl Tcp {
    fn new(change: fn(&mut Config)) -> Self {
        Self { start: Clock::now(), change }
    }
}

impl Setup for Tcp {
    type Rail = Rail;

    fn rails(&mut self, count: usize) -> Vec<Rail> {
        (0..count as u32)
            .map(|rank| {
                let mut config = Config::new(0x51, rank, JobKey::new([0x17; 32]));
                (self.change)(&mut config);
                Rail::new(config).expect("this host has a loopback")
            })
            .collect()
    }

    fn now(&mut self) -> Instant {
        Instant::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    fn ready(&mut self, rail: &Rail) -> Option<bool> {
        let mut handle = libc::pollfd { fd: rail.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // The kernel may take a moment to move what was sent. SAFETY: one descriptor, valid for the call.
        Some(unsafe { libc::poll(&mut handle, 1, 10) } > 0)
    }
}

mod defaults {
    use super::*;
    rail_suite!(Tcp::new(|_| {}));
}

/// Little room everywhere, so that every check fills it, and epoll instead of direct reads.
mod tight {
    use super::*;
    rail_suite!(Tcp::new(|config| {
        config.link = 2;
        config.eager_limit_bytes = 700;
        config.rendezvous_eager_limit_bytes = 700;
        config.max_send_size_bytes = 9000;
        config.min_fragment_bytes = 700;
        config.in_place_from_bytes = 600;
        config.send_queue_frames = 4;
        config.large_buffers = 1;
        config.receive_staging_bytes = 1024;
        config.socket_send_buffer_bytes = Some(16 * 1024);
        config.socket_receive_buffer_bytes = Some(16 * 1024);
        config.direct_connections = 0;
        config.epoll_interval_many_polls = 1;
    }));
}

/// IPv6 alone.
mod ipv6 {
    use super::*;
    rail_suite!(Tcp::new(|config| config.filter.include = vec!["::1".into()]));
}

/// Rails of one node, link by link.
struct Links {
    tcp: Tcp,
    made: u32,
    count: usize,
}

impl Links {
    fn new(count: usize) -> Self {
        Self { tcp: Tcp::new(|_| {}), made: 0, count }
    }
}

impl Setup for Links {
    type Rail = Rail;

    fn rails(&mut self, count: usize) -> Vec<Rail> {
        let link = self.made;
        self.made += 1;
        (0..count as u32)
            .map(|rank| {
                let mut config = Config::new(0x51, rank, JobKey::new([0x17; 32]));
                config.link = link as _;
                Rail::new(config).expect("this host has a loopback")
            })
            .collect()
    }

    fn links(&self) -> usize {
        self.count
    }

    fn now(&mut self) -> Instant {
        self.tcp.now()
    }

    fn ready(&mut self, rail: &Rail) -> Option<bool> {
        self.tcp.ready(rail)
    }
}

/// Matching transports over one connection a pair.
mod mtl {
    use super::*;
    towline_host_tests::mtl_suite!(Links::new(1));
}

/// Matching transports over three connections a pair.
mod mtl_three_links {
    use super::*;
    towline_host_tests::mtl_suite!(Links::new(3));
}
