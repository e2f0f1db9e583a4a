//! Why a job did not begin.

use std::{fmt, io};

/// Why a job did not begin.
#[derive(Debug)]
#[non_exhaustive]
pub enum LaunchError {
    /// A job needs a rank.
    NoRanks,
    /// A job can have [`RANKS_MAX`](crate::RANKS_MAX) ranks at most.
    TooManyRanks {
        /// Ranks that were asked for.
        ranks: u32,
    },
    /// There are fewer slots than ranks.
    TooFewSlots {
        /// Ranks that were asked for.
        ranks: u32,
        /// Slots that the hosts have together.
        slots: u32,
    },
    /// The limit of open files is too low for what the launcher needs for its ranks: it starts none then.
    TooFewFiles {
        /// Ranks that this launcher, or its agent on a host, has to look after.
        ranks: usize,
        /// Files that would be open.
        needed: u64,
        /// Files that may be open at most.
        limit: u64,
    },
    /// The system refused something.
    System {
        /// What was to be done.
        what: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRanks => f.write_str("a job of 0 ranks: ask for at least 1"),
            Self::TooManyRanks { ranks } => {
                write!(f, "a job of {ranks} ranks: ask for at most {}", crate::RANKS_MAX)
            }
            Self::TooFewSlots { ranks, slots } => {
                write!(f, "the hosts have {slots} slots for {ranks} ranks: add hosts or slots=N to the hosts file")
            }
            Self::TooFewFiles { ranks, needed, limit } => write!(
                f,
                "{ranks} ranks need {needed} open files here, and the limit is {limit}: raise it (`ulimit -Hn`), or take \
                 fewer ranks, or more hosts"
            ),
            Self::System { what, source } => write!(f, "cannot {what}: {source}"),
        }
    }
}

impl std::error::Error for LaunchError {}
