//! Joins the job of this process, once.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use towline_bootstrap::{Environment, Job};
use towline_pmix::Pmix;

use crate::errors::error::Error;
use crate::errors::setup::SetupError;
use crate::forks::owned::Process;
use crate::job::bootstrap::Bootstrap;
use crate::settings::config::Config;

/// What a launcher has started this process as.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Member {
    /// The rank of a job of the own bootstrap: the job's number, and the rank.
    Own(u64, u32),
    /// The rank of a PMIx launcher.
    Pmix,
}

/// A job that this process, or one that it was forked from, has joined.
struct Joined {
    member: Member,
    rank: u32,
    process: Process,
}

/// Joins the job that the environment describes. A process is one rank of a job that a launcher started. A job of its own, without
/// a launcher, may be made any number of times.
///
/// # Errors
/// [`SetupError::AlreadyJoined`], [`SetupError::Forked`] in a child of the process that has joined, and those of [`Job::join`] and
/// [`Pmix::start`].
pub(crate) fn join(config: &Config, deadline: Instant) -> Result<Job, SetupError> {
    if config.chosen_bootstrap().bootstrap == Bootstrap::Pmix {
        return join_once(Member::Pmix, || {
            let pmix = Pmix::start(&config.pmix_library)?;
            let local = pmix.local_ranks().map(<[u32]>::to_vec);
            let environment = Environment::of_rank(pmix.rank(), pmix.size(), local)?;
            Ok(Job::over(environment, Box::new(pmix), deadline)?)
        });
    }
    let environment = Environment::read().map_err(towline_bootstrap::Error::from)?;
    if environment.root.is_empty() {
        return Ok(Job::join(environment, deadline)?);
    }
    join_once(Member::Own(environment.job, environment.rank), || Ok(Job::join(environment, deadline)?))
}

fn join_once(member: Member, join: impl FnOnce() -> Result<Job, SetupError>) -> Result<Job, SetupError> {
    static JOINED: Mutex<Vec<Joined>> = Mutex::new(Vec::new());
    let mut joined = JOINED.lock().unwrap_or_else(PoisonError::into_inner);
    match joined.iter().find(|before| before.member == member) {
        None => {}
        Some(Joined { rank, process, .. }) if process.is_this() => {
            return Err(SetupError::AlreadyJoined { rank: *rank });
        }
        Some(Joined { process, .. }) => return Err(SetupError::Forked(Error::Forked { process: process.id })),
    }
    let job = join()?;
    joined.push(Joined { member, rank: job.rank(), process: Process::this() });
    Ok(job)
}
