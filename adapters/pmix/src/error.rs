//! Why a job could not be started under PMIx.

use std::fmt;

/// Why a job could not be started under PMIx.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No PMIx launcher has started this process: the variable with this name is not set.
    NotStarted(&'static str),
    /// The library could not be loaded.
    Library(String),
    /// A call of the library has failed.
    Call {
        /// What it was for.
        what: &'static str,
        /// What the library says.
        why: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted(variable) => write!(
                f,
                "no PMIx launcher has started this process, since {variable} is not set: start it by mpirun, prterun or \
                 `srun --mpi=pmix`, or by `towline run` with TOWLINE_BOOTSTRAP=auto"
            ),
            Self::Library(why) => write!(
                f,
                "a PMIx launcher has started this process (PMIX_RANK is set), but the PMIx library cannot be loaded: {why}; install it \
                 (libpmix2), or set TOWLINE_PMIX_LIBRARY to its path, or start by `towline run`; TOWLINE_BOOTSTRAP=own makes each \
                 process a job of its own"
            ),
            Self::Call { what, why } => write!(
                f,
                "PMIx cannot {what}: {why}; look at the launcher's output, and load the PMIx library that the launcher uses \
                 (TOWLINE_PMIX_LIBRARY)"
            ),
        }
    }
}

impl std::error::Error for Error {}

towline_core::debug_as_display!(Error);
