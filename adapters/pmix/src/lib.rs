//! Jobs under PMIx launchers: `mpirun` and `prterun` of Open MPI and PRRTE, and `srun --mpi=pmix` of Slurm.
//!
//! [`Pmix`] connects a process to the launcher that has started it. It is an [`Exchange`](towline_bootstrap::Exchange), over which
//! [`Job::over`](towline_bootstrap::Job::over) starts a job: the publications of the ranks go through the launcher, its events say
//! which ranks have failed, and its abort ends the job. The crate `towline` does this by itself, if the variables `PMIX_NAMESPACE`
//! and `PMIX_RANK` say that such a launcher has started the process.
//!
//! ```no_run
//! use std::time::{Duration, Instant};
//! use towline_bootstrap::{Environment, Job};
//! use towline_pmix::Pmix;
//!
//! let pmix = Pmix::start("")?;
//! let environment = Environment::of_rank(pmix.rank(), pmix.size(), pmix.local_ranks().map(<[u32]>::to_vec))?;
//! let job = Job::over(environment, Box::new(pmix), Instant::now() + Duration::from_secs(60))?;
//! println!("rank {} of {}", job.rank(), job.size());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The PMIx library is loaded when it is needed, and not linked: a program that is started in another way does without it. Its calls
//! are those of the PMIx standard, version 3 and later. The tests run with the versions 4.2 and 5.0 of OpenPMIx.
//!
//! **Trust.** The job's key goes through the launcher, which is trusted as `towline run` is.
#![deny(missing_docs)]

mod abi;
mod clean_up;
mod client;
mod error;
mod events;
mod library;
mod values;

pub use client::{Pmix, is_started, library_version};
pub use error::Error;
