//! Lists of endpoints that wait for an action, and the times of the next timed actions.

use towline_core::time::Instant;

/// Endpoints that wait for an action. Each endpoint is in each list at most once.
#[derive(Debug, Default)]
pub struct EndpointLists {
    /// Endpoints whose queue pair has failed.
    pub failed: Vec<u32>,
    /// Endpoints to which a connection was requested.
    pub requested: Vec<u32>,
    /// Endpoints with which hellos are exchanged.
    pub handshakes: Vec<u32>,
    /// Endpoints with unsignaled frames behind the last signaled one.
    pub tails: Vec<u32>,
}

impl EndpointLists {
    /// Notes that the queue pair of an endpoint has failed. Returns whether that is new.
    pub fn add_failed(&mut self, endpoint: u32) -> bool {
        let new = !self.failed.contains(&endpoint);
        if new {
            self.failed.push(endpoint);
        }
        new
    }

    /// Removes an endpoint from all lists.
    pub fn remove(&mut self, endpoint: u32) {
        for list in self.all() {
            list.retain(|it| *it != endpoint);
        }
    }

    /// Makes room for `count` endpoints in each list, so that nothing is allocated later.
    pub fn reserve(&mut self, count: usize) {
        for list in self.all() {
            list.reserve(count.saturating_sub(list.len()));
        }
    }

    const fn all(&mut self) -> [&mut Vec<u32>; 4] {
        [&mut self.failed, &mut self.requested, &mut self.handshakes, &mut self.tails]
    }
}

/// Times of the next timed actions; `None` where there is none.
#[derive(Debug, Default)]
pub struct Timers {
    /// When to look at the tails.
    pub tails: Option<Instant>,
    /// When to look at the handshakes: not later than the next hello is due.
    pub hellos: Option<Instant>,
    /// When to look for peers that need a keepalive; `None` while there is no connection.
    pub keepalive: Option<Instant>,
}

impl Timers {
    /// The earliest of these times, and of `other`.
    pub fn earliest(&self, other: Option<Instant>) -> Option<Instant> {
        [self.tails, self.hellos, self.keepalive, other].into_iter().flatten().min()
    }
}
