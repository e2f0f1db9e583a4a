//! Joins the job of the environment, once.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use towline_bootstrap::{Environment, Job};

use crate::errors::setup::SetupError;

/// Joins the job that the environment describes. A process is one rank of a job that a launcher started. A job of its own, without
/// a launcher, may be made any number of times.
///
/// # Errors
/// [`SetupError::AlreadyJoined`], and those of [`Job::join`].
pub(crate) fn join(environment: Environment, deadline: Instant) -> Result<Job, SetupError> {
    /// Job and rank, and the process: a child that was forked is another one.
    static JOINED: Mutex<Vec<(u64, u32, u32)>> = Mutex::new(Vec::new());
    let (rank, has_launcher) = (environment.rank, !environment.root.is_empty());
    let this = (environment.job, rank, std::process::id());
    let mut joined = JOINED.lock().unwrap_or_else(PoisonError::into_inner);
    if has_launcher && joined.contains(&this) {
        return Err(SetupError::AlreadyJoined { rank });
    }
    let job = Job::join(environment, deadline)?;
    if has_launcher {
        joined.push(this);
    }
    Ok(job)
}
