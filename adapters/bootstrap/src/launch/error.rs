//! Errors that keep a job from starting.

use std::path::PathBuf;
use std::{fmt, io};

use towline_net::{advice, counted};

/// Why a job could not be started.
#[non_exhaustive]
pub enum LaunchError {
    /// A job of 0 ranks was asked for.
    NoRanks,
    /// More ranks were asked for than [`RANKS_MAX`](crate::RANKS_MAX).
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
    /// The limit of open files is too low for the number of ranks. No rank was started.
    TooFewFiles {
        /// Ranks of this launcher, or of its agent on a host.
        ranks: usize,
        /// Number of files that would be open.
        needed: u64,
        /// Number of files that may be open.
        limit: u64,
    },
    /// The input was to go to a rank that the job does not have.
    NoSuchRank {
        /// The rank that was asked for.
        rank: u32,
        /// Number of ranks of the job.
        ranks: u32,
    },
    /// Each rank was to have a core, and this host has fewer cores that this process may use.
    TooFewCores {
        /// Ranks on this host.
        ranks: usize,
        /// Cores of this host.
        cores: usize,
    },
    /// A directory or file for the output of a rank cannot be made.
    Output {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The system refused a request.
    System {
        /// The action of the launcher that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRanks => f.write_str("a job needs at least 1 rank, and 0 were asked for: ask for more by -n"),
            Self::TooManyRanks { ranks } => {
                write!(
                    f,
                    "{ranks} ranks were asked for, and a job can have at most {}: ask for fewer",
                    crate::RANKS_MAX
                )
            }
            Self::TooFewSlots { ranks, slots } => {
                write!(
                    f,
                    "the hosts have {} for {}: add hosts to the hosts file, or raise their slots=N",
                    counted(*slots, "slot"),
                    counted(*ranks, "rank")
                )
            }
            Self::TooFewFiles { ranks, needed, limit } => write!(
                f,
                "{} on this host: {needed} open files are needed, and the limit is {limit}; raise the limit (`ulimit -Hn`), or use \
                 fewer ranks or more hosts",
                counted(*ranks, "rank")
            ),
            Self::NoSuchRank { rank, ranks } => write!(
                f,
                "the standard input was to go to rank {rank}, and the job has {}, counted from 0: name one of them, or use more ranks",
                counted(*ranks, "rank")
            ),
            Self::TooFewCores { ranks, cores } => write!(
                f,
                "each rank was to have a core of its own, and this host has {} for {}: use fewer ranks or more hosts, or neither \
                 bind to cores nor map by core",
                counted(*cores, "core"),
                counted(*ranks, "rank")
            ),
            Self::Output { path, source } => {
                write!(f, "cannot make {} for the output: {source}{}", path.display(), advice(source))
            }
            Self::System { what, source } => write!(f, "cannot {what}: {source}{}", advice(source)),
        }
    }
}

impl std::error::Error for LaunchError {}

towline_core::debug_as_display!(LaunchError);
