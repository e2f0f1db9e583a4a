//! Joins the job of the environment, once.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use towline_bootstrap::{Environment, Job};

use crate::errors::error::Error;
use crate::errors::setup::SetupError;
use crate::forks::owned::Process;

/// Joins the job that the environment describes. A process is one rank of a job that a launcher started. A job of its own, without
/// a launcher, may be made any number of times.
///
/// # Errors
/// [`SetupError::AlreadyJoined`], [`SetupError::Forked`] in a child of the process that has joined, and those of [`Job::join`].
pub(crate) fn join(environment: Environment, deadline: Instant) -> Result<Job, SetupError> {
    /// Job and rank, and the process.
    static JOINED: Mutex<Vec<(u64, u32, Process)>> = Mutex::new(Vec::new());
    let (rank, has_launcher) = (environment.rank, !environment.root.is_empty());
    let this = (environment.job, rank);
    let mut joined = JOINED.lock().unwrap_or_else(PoisonError::into_inner);
    let before = joined.iter().find(|(job, rank, _)| has_launcher && (*job, *rank) == this);
    match before.map(|(_, _, process)| *process) {
        None => {}
        Some(process) if process.is_this() => return Err(SetupError::AlreadyJoined { rank }),
        Some(process) => return Err(SetupError::Forked(Error::Forked { process: process.id })),
    }
    let job = Job::join(environment, deadline)?;
    if has_launcher {
        joined.push((this.0, this.1, Process::this()));
    }
    Ok(job)
}
