//! The state of a context: one address in the job, its engine, and its connection to the launcher.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use towline_bootstrap::report::Report;
use towline_core::btl::selection::{Candidate, Report as Choice};
use towline_core::rail::Peer;

use crate::engine::reporter::Reporting;
use crate::errors::error::Error;
use crate::forks::handlers::{Markable as _, Marked, mark_in_children};
use crate::forks::owned::Owned;
use crate::job::launcher::Launcher;
use crate::settings::config::Config;
use crate::threads::levels::Sharing;
use crate::threads::lock::{EngineGuard, EngineLock};
use crate::values::address::Grid;
use towline_settings::Setting;

/// Shared by everything that belongs to a context.
pub(crate) struct ContextState<L: Sharing> {
    /// Has the engine marked in forked children, once the context was entered. Dropped before the engine.
    pub marked: OnceLock<Marked>,
    pub engine: Owned<L::Lock>,
    /// The address of this context, and those of all others.
    pub grid: Grid,
    pub launcher: Arc<Launcher>,
    pub config: Config,
    pub settings: Vec<Setting>,
    /// For each address, in the order of the numbers, the verdict on each rail.
    pub rail_choices: Mutex<Vec<Vec<Candidate>>>,
    /// The names under which the cards of the rails in use are published, in the same order as the rails.
    pub rail_names: Vec<String>,
    /// Transports that do not work here, and why.
    pub failed_transports: Vec<(String, String)>,
    /// The DPU of this context and what it does, for the report.
    pub device: Option<String>,
    /// A line about the progress thread for the report.
    pub progress_thread_note: Option<String>,
    pub finished: AtomicBool,
}

impl<L: Sharing> ContextState<L> {
    /// Has the engine marked in children that are forked from now on.
    ///
    /// # Safety
    /// The state stays where it is until it is dropped.
    pub unsafe fn mark_in_children(&self) {
        if self.is_copy() {
            self.engine.mark_as_copy();
        } else {
            // SAFETY: the caller's promise. The result is dropped before the engine is.
            let _ = self.marked.set(unsafe { mark_in_children::<L::Lock>(&raw const *self.engine) });
        }
    }

    /// Whether this is a copy in a forked child.
    pub fn is_copy(&self) -> bool {
        !self.engine.owner().is_this()
    }

    /// The error of operations in a forked child.
    pub fn check_process(&self) -> Result<(), Error> {
        if self.is_copy() { Err(Error::Forked { process: self.engine.owner().id }) } else { Ok(()) }
    }

    /// Wakes the tasks and frees the buffers of completed requests. Runs code of users.
    #[inline]
    pub fn run_callbacks(&self) {
        self.engine.run_callbacks();
    }

    /// The number of this context among the peers of its engine.
    pub fn own_peer(&self) -> Peer {
        self.grid.peer(self.grid.own_number())
    }

    /// Makes progress once. Returns how many events there were.
    pub fn progress(&self) -> u32 {
        let events = self.engine.lock().poll_and_look();
        self.run_callbacks();
        events
    }

    /// As [`progress`](Self::progress), for a task that polls its operation, and then uses the engine again.
    pub fn progress_for_task(&self) -> u32 {
        let mut engine = self.engine.lock();
        let events = engine.poll_and_look();
        engine.returns_soon();
        drop(engine);
        self.run_callbacks();
        events
    }

    /// What this context does and waits for.
    pub fn report(&self) -> Report {
        let mut engine = self.engine.lock();
        let now = engine.clock.renew();
        engine.report(now, Reporting::Polls)
    }

    /// Lines of text for users: the working rails, and the rails by which each address is reached.
    pub fn transport_report(&self) -> Vec<String> {
        if let Err(forked) = self.check_process() {
            return vec![forked.to_string()];
        }
        let engine = self.engine.lock();
        let line = |(number, rails): (usize, &Vec<Candidate>)| {
            let choice = Choice { peer: Peer(number as u32), rails };
            format!("{choice}{}", engine.mtl.rails().long_messages(rails))
        };
        let choices = self.rail_choices.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = choices.iter().enumerate().map(line);
        let failures = self.failed_transports.iter().map(|(name, why)| format!("{name} does not work here: {why}"));
        failures.chain(self.device.clone()).chain(lines).chain(self.progress_thread_note.clone()).collect()
    }
}
