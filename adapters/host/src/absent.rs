//! Contexts that went without a word. Rails report the loss of those that they are connected to; of others an engine hears
//! through the launcher, while it has nothing else to do.

use std::sync::Arc;

use towline_core::btl::Peer;
use towline_core::time::{Duration, Instant};

use crate::address::Grid;
use crate::launch::Launch;

/// How often the launcher is asked.
const INTERVAL: Duration = Duration::from_millis(100);
/// How long a rail is given to report the loss itself: not before all is read that was sent before it.
const GRACE: Duration = Duration::from_millis(1000);

/// What one engine has heard.
pub(crate) struct Absent {
    launch: Arc<Launch>,
    grid: Grid,
    next: Instant,
    /// How many it knows of.
    heard: usize,
    /// Those that the engine has yet to give up, and when.
    due: Vec<(Instant, Peer)>,
}

impl Absent {
    pub fn new(launch: Arc<Launch>, grid: Grid) -> Self {
        Self { launch, grid, next: Instant::ZERO, heard: 0, due: Vec::new() }
    }

    /// A peer that is to be given up now. To be asked while nothing comes.
    pub fn next(&mut self, now: Instant) -> Option<Peer> {
        if now >= self.next {
            self.next = now + INTERVAL;
            let lost = self.launch.lost(self.heard);
            self.heard += lost.len();
            self.due.extend(lost.into_iter().map(|number| (now + GRACE, self.grid.peer(number))));
        }
        let at = self.due.iter().position(|(due, _)| *due <= now)?;
        Some(self.due.swap_remove(at).1)
    }
}
