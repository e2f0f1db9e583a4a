//! The process's tie to its launcher, shared by its contexts. No message's way leads past it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use towline_bootstrap::{Error, Job};

/// The job as its launcher knows it: whole processes.
pub(crate) struct Launch(Mutex<Tie>);

struct Tie {
    job: Job,
    /// Contexts that have not come to their end.
    open: u32,
}

impl Launch {
    /// For so many contexts.
    pub fn new(job: Job, contexts: u32) -> Self {
        Self(Mutex::new(Tie { job, open: contexts }))
    }

    /// A context came to its end in good order. The last one tells the launcher that this rank is done.
    pub fn finish(&self) -> Result<(), Error> {
        let mut tie = self.tie();
        tie.open = tie.open.saturating_sub(1);
        if tie.open == 0 { tie.job.finish() } else { Ok(()) }
    }

    /// Asks the launcher to end all ranks.
    pub fn abort(&self, code: i32, message: &str) -> Result<(), Error> {
        self.tie().job.abort(code, message)
    }

    fn tie(&self) -> MutexGuard<'_, Tie> {
        // A thread that panicked in here has said less than it wanted, no more.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
