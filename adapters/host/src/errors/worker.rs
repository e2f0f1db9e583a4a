//! Errors of workers.

use std::fmt;

use crate::errors::error::Error;

/// Why a [`Worker`](crate::Worker) has not done what was asked.
///
/// ```
/// use towline::{Builder, Place, WorkerError};
///
/// let place = Place::new(0x1234, towline::JobKey::new([7; 32]), 0);
/// let worker = Builder::new().transports("tcp").open(place)?;
/// let why = worker.communicator(1, &[0, 9], Some(0)).unwrap_err();
/// assert!(matches!(why, WorkerError::NoSuchPeer(9)));
/// assert_eq!(why.to_string(), "there is no peer with the number 9: add its card first");
/// # Ok::<(), towline::SetupError>(())
/// ```
#[non_exhaustive]
pub enum WorkerError {
    /// The card of a process cannot be accepted.
    Card(towline_bootstrap::Error),
    /// There are as many peers as [`Place::peers`](crate::Place::peers) allows.
    Full {
        /// How many.
        most: u32,
    },
    /// No transport reaches a process.
    Unreachable {
        /// The number of the process.
        number: u32,
        /// The verdict on each transport.
        report: String,
    },
    /// No process with this number was added.
    NoSuchPeer(u32),
    /// The id of a communicator is 2^31 or more.
    Id(u32),
    /// The rank that was given for this process in a communicator is not its own.
    Rank {
        /// The rank.
        rank: u32,
        /// The number of this process.
        number: u32,
    },
    /// The error of an operation: no room for a communicator, an id that is in use, a forked child.
    Operation(Error),
}

impl fmt::Display for WorkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Card(why) => why.fmt(f),
            Self::Full { most } => write!(
                f,
                "there are {most} peers, as many as `Place::peers` allows: remove some, or open the worker with more"
            ),
            Self::Unreachable { number, report } => {
                write!(
                    f,
                    "no transport reaches process {number} ({report}): allow another transport, or check the network"
                )
            }
            Self::NoSuchPeer(number) => write!(f, "there is no peer with the number {number}: add its card first"),
            Self::Id(id) => write!(f, "the id {id} of a communicator is not below 2147483648: choose another one"),
            Self::Rank { rank, number } => write!(
                f,
                "rank {rank} of the members is not process {number}, which is this one: pass the rank of this process, or none"
            ),
            Self::Operation(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for WorkerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Card(why) => Some(why),
            Self::Operation(why) => Some(why),
            _ => None,
        }
    }
}

towline_core::debug_as_display!(WorkerError);

impl From<Error> for WorkerError {
    fn from(why: Error) -> Self {
        Self::Operation(why)
    }
}
