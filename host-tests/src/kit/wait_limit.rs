//! The limit for which a check waits for an event.

use std::thread;
use std::time::{Duration, Instant};

/// Number of idle rounds after which a check may give up ...
const IDLE: u32 = 400_000;

/// ... if it was also idle for this time. A rail in real time may have to resend lost frames, and on a busy machine it
/// estimates a long round-trip time. It is longer than [`LINK_TIMEOUT`](super::LINK_TIMEOUT).
pub(super) const SPAN: Duration = Duration::from_secs(60);

/// Number of rounds after which a check gives up although it is never idle.
const ROUNDS: u32 = 50_000_000;

/// Counts the rounds of one wait.
#[derive(Default)]
pub(super) struct WaitLimit {
    rounds: u32,
    idle: u32,
    /// Since when nothing has arrived. It is set after some idle rounds only, since reading the clock takes time.
    since: Option<Instant>,
}

impl WaitLimit {
    /// Counts a round. `came` says that something arrived in it. Returns whether the limit has passed.
    pub fn expired(&mut self, came: bool) -> bool {
        self.rounds += 1;
        if came {
            (self.idle, self.since) = (0, None);
            return self.rounds >= ROUNDS;
        }
        self.idle += 1;
        if self.idle % 256 != 255 {
            return self.rounds >= ROUNDS;
        }
        thread::yield_now();
        let since = *self.since.get_or_insert_with(Instant::now);
        self.rounds >= ROUNDS || (self.idle >= IDLE && since.elapsed() >= SPAN)
    }
}
