//! A setup of rails whose wait handle is a descriptor, in real time.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Instant as Clock;

use towline_core::rail::{FullRail, HEAD};
use towline_core::time::Instant;

use super::mesh::Setup;

/// Rails of one process.
pub struct SocketSetup<R, M> {
    start: Clock,
    make: M,
    handle: fn(&R) -> BorrowedFd<'_>,
    turn: Box<dyn FnMut()>,
    links: usize,
    longest_header: usize,
    made: usize,
}

impl<R: FullRail, M: FnMut(u32, u8) -> R> SocketSetup<R, M> {
    /// `make(rank, link)` makes a rail, and `handle` gives its wait handle.
    pub fn new(make: M, handle: fn(&R) -> BorrowedFd<'_>) -> Self {
        Self { start: Clock::now(), make, handle, turn: Box::new(|| {}), links: 1, longest_header: HEAD, made: 0 }
    }

    /// Adds a simulated network, which is called before each poll.
    pub fn with_network(self, turn: impl FnMut() + 'static) -> Self {
        Self { turn: Box::new(turn), ..self }
    }

    /// Sets the longest header of the rails.
    pub fn with_longest_header(self, longest_header: usize) -> Self {
        Self { longest_header, ..self }
    }

    /// Sets the number of rails of each node of a transport.
    pub fn with_links(self, links: usize) -> Self {
        Self { links, ..self }
    }
}

impl<R: FullRail, M: FnMut(u32, u8) -> R> Setup for SocketSetup<R, M> {
    type Rail = R;

    fn rails(&mut self, count: usize) -> Vec<R> {
        let link = self.made as u8;
        self.made += 1;
        (0..count as u32).map(|rank| (self.make)(rank, link)).collect()
    }

    fn links(&self) -> usize {
        self.links
    }

    fn now(&mut self) -> Instant {
        (self.turn)();
        Instant::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    fn longest_header(&self) -> usize {
        self.longest_header
    }

    fn ready(&mut self, rail: &R) -> Option<bool> {
        (self.turn)();
        let mut handle = libc::pollfd { fd: (self.handle)(rail).as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // The kernel may take a moment to deliver. SAFETY: one descriptor, valid for the call.
        Some(unsafe { libc::poll(&mut handle, 1, 10) } > 0)
    }
}
