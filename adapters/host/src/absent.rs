//! Contexts that have ended, well or not. Rails report the loss of those that they are connected to; of others an engine hears
//! through the launcher, while it has nothing else to do: from them no message can come any more.

use std::sync::Arc;

use towline_core::btl::{Lost, Peer};
use towline_core::time::{Duration, Instant};

use crate::address::Grid;
use crate::launch::Launch;

/// How often an idle engine looks what came from the launcher.
const INTERVAL: Duration = Duration::from_millis(100);
/// How long nothing must have come before the launcher is asked.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long a rail is given to report the loss itself: not before all is read that was sent before it.
const GRACE: Duration = Duration::from_millis(2000);

/// What one engine has heard.
pub(crate) struct Absent {
    launch: Arc<Launch>,
    grid: Grid,
    next: Instant,
    /// How many it knows of.
    heard: usize,
    /// Those that the engine has yet to give up, and when.
    due: Vec<(Instant, Peer, Lost)>,
}

impl Absent {
    pub fn new(launch: Arc<Launch>, grid: Grid) -> Self {
        Self { launch, grid, next: Instant::ZERO, heard: 0, due: Vec::new() }
    }

    /// A peer that is to be given up now, and why. To be asked while nothing comes, with how long that has been so.
    pub fn next(&mut self, now: Instant, idle: Duration) -> Option<(Peer, Lost)> {
        if now >= self.next {
            self.next = now + INTERVAL;
            let ended = self.launch.ended(self.heard, idle >= PATIENCE);
            self.heard += ended.len();
            let own = self.grid.own_number();
            let others = ended.into_iter().filter(|(number, _)| *number != own);
            let why = |died: bool| if died { Lost::Broken } else { Lost::Closed };
            self.due.extend(others.map(|(number, died)| (now + GRACE, self.grid.peer(number), why(died))));
        }
        let at = self.due.iter().position(|(due, ..)| *due <= now)?;
        let (_, peer, why) = self.due.swap_remove(at);
        Some((peer, why))
    }
}
