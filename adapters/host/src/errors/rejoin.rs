//! Why a restarted rank was not accepted.

use std::fmt;

use towline_core::error::Blame;

use crate::errors::error::Error;

/// A restarted rank was not accepted: the error of [`World::rejoin`](crate::World::rejoin).
///
/// ```
/// use std::time::Duration;
/// use towline::RejoinError;
///
/// let world = towline::init()?;
/// let error = world.rejoin(7, Duration::ZERO).unwrap_err();
/// assert_eq!(error, RejoinError::NoSuchRank { rank: 7, size: 1 });
/// # Ok::<(), towline::SetupError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RejoinError {
    /// The world has no such rank.
    NoSuchRank {
        /// The rank that was asked for.
        rank: u32,
        /// How many ranks there are.
        size: u32,
    },
    /// A rank cannot accept itself.
    Itself {
        /// Which rank.
        rank: u32,
    },
    /// The rank was not restarted, or was accepted already.
    NotRestarted {
        /// Which rank.
        rank: u32,
        /// How long this rank waited for it, in milliseconds.
        waited_ms: u64,
    },
    /// No transport reaches the new process. It may have died, too, and may be restarted once more.
    Unreachable {
        /// Which rank.
        rank: u32,
        /// The verdict on each transport.
        report: String,
    },
    /// This process was forked from the one to which the world belongs.
    Forked(Error),
    /// The new process was built with another number of contexts.
    Contexts {
        /// Which rank.
        rank: u32,
    },
}

impl RejoinError {
    /// The party that has to act: this program, the other rank, or the system that provides a resource.
    pub fn blame(&self) -> Blame {
        match self {
            Self::NoSuchRank { .. } | Self::Itself { .. } | Self::Forked(_) => Blame::Caller,
            _ => Blame::Peer,
        }
    }
}

impl fmt::Display for RejoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forked(why) => why.fmt(f),
            Self::NoSuchRank { rank, size } => {
                write!(f, "there is no rank {rank}: the world has {size} (numbered from 0)")
            }
            Self::Itself { rank } => {
                write!(f, "rank {rank} cannot accept itself: pass the number of another rank that was restarted")
            }
            Self::NotRestarted { rank, waited_ms } => write!(
                f,
                "rank {rank} was not restarted within {waited_ms} ms: see the launcher's output, and start the job with \
                 `towline run --restart`"
            ),
            Self::Unreachable { rank, report } => write!(
                f,
                "no transport reaches the new process of rank {rank} ({report}): try again when the rank has been restarted"
            ),
            Self::Contexts { rank } => write!(
                f,
                "the new process of rank {rank} has another number of contexts: build all ranks with the same number"
            ),
        }
    }
}

impl std::error::Error for RejoinError {}

towline_core::debug_as_display!(RejoinError);
