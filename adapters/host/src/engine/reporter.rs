//! What a context needs to answer the launcher's questions for reports.

use std::sync::Arc;

use towline_core::time::{Duration, Instant};

use crate::engine::waits::Wait;
use crate::job::launcher::Launcher;
use crate::values::address::Grid;

/// What a context needs to answer the launcher's questions.
pub(crate) struct Reporter {
    pub launcher: Arc<Launcher>,
    pub grid: Grid,
    /// Several threads may use the context.
    pub threads: bool,
    /// When to look next.
    pub look_at: Instant,
    /// The last question that was answered.
    pub answered: u32,
    /// After this time in `finish` the context says for whom it waits. `None`: never.
    pub finish_limit: Option<Duration>,
    /// When the context began to finish.
    pub finishing: Option<Instant>,
    /// It was said that the context waits in `finish` for long.
    pub finish_reported: bool,
}

/// The thread that makes a report.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reporting {
    /// It waits in a blocking call.
    Waits(Wait),
    /// It makes a call that does not wait.
    Polls,
    /// It is the progress thread.
    ProgressThread,
}

impl Reporter {
    /// `finish_report_ms`: the setting of this name.
    pub fn new(launcher: Arc<Launcher>, grid: Grid, threads: bool, finish_report_ms: u32) -> Self {
        let finish_limit = (finish_report_ms != 0).then(|| Duration::from_millis(finish_report_ms.into()));
        Self {
            launcher,
            grid,
            threads,
            look_at: Instant::ZERO,
            answered: 0,
            finish_limit,
            finishing: None,
            finish_reported: false,
        }
    }
}
