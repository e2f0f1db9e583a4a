//! How long a check waits for what does not come.

use std::thread;
use std::time::{Duration, Instant};

/// Idle rounds, of virtual time or real, after which a check may give up waiting ...
const IDLE: u32 = 400_000;

/// ... once it was idle for so long, too: a rail in real time may have to send again what was lost, and a busy machine makes it
/// think that the way is long.
const SPAN: Duration = Duration::from_secs(20);

/// Rounds after which what is never idle is taken to run in circles.
const ROUNDS: u32 = 50_000_000;

/// Counts the rounds of one wait.
#[derive(Default)]
pub(super) struct WaitLimit {
    rounds: u32,
    idle: u32,
    /// Since when nothing came, looked at now and then.
    since: Option<Instant>,
}

impl WaitLimit {
    /// Another round, in which something came or nothing. `true`: it is time to give up.
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
