//! What can go wrong between a rank and its launcher.

use std::time::Duration;
use std::{fmt, io};

use towline_core::error::Blame;
use towline_core::modex::{SendError, SetError};

/// Why a step of the bootstrap failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A variable of the environment is missing or malformed: the launcher's fault, or that of whoever set it.
    Environment(EnvironmentError),
    /// No connection to the server.
    Connect {
        /// Where it was expected.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// The server refused this rank.
    Refused {
        /// Which server.
        address: String,
        /// Why.
        why: String,
    },
    /// The deadline passed.
    Timeout {
        /// What was being done, and who is missing.
        step: String,
        /// How long this rank has waited.
        waited: Duration,
    },
    /// The connection to the server broke: the launcher is gone.
    Lost {
        /// What was being done.
        step: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// The other side sent what the protocol does not allow.
    Protocol {
        /// What it was.
        what: String,
    },
    /// A rank ended, so what is awaited from it will never come.
    PeerGone {
        /// That rank.
        rank: u32,
        /// What it is missing from.
        step: &'static str,
    },
    /// [`finish`](crate::Job::finish) was called before.
    Finished,
    /// A component cannot be published.
    Publish(SendError),
    /// The system gave no random numbers or refused a socket option.
    System(io::Error),
}

impl Error {
    /// Who has to act.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Environment(_) | Self::Finished => Blame::Caller,
            Self::Publish(why) => why.blame(),
            Self::System(_) => Blame::Resource,
            _ => Blame::Peer,
        }
    }

    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        Self::Protocol { what: what.into() }
    }

    pub(crate) fn set(why: SetError) -> Self {
        Self::protocol(why.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment(why) => why.fmt(f),
            Self::Connect { address, source } => {
                write!(f, "cannot reach the job's server at {address}: {source}; is the launcher still running?")
            }
            Self::Refused { address, why } => write!(f, "the server at {address} refused this rank: {why}"),
            Self::Timeout { step, waited } => write!(f, "{step}: gave up after {:.1} s", waited.as_secs_f64()),
            Self::Lost { step, source } => write!(f, "{step}: the launcher closed the connection: {source}"),
            Self::Protocol { what } => write!(f, "the launcher does not keep to the protocol: {what}"),
            Self::PeerGone { rank, step } => write!(f, "{step}: rank {rank} ended and will not take part"),
            Self::Finished => f.write_str("the job was finished by this rank before"),
            Self::Publish(why) => why.fmt(f),
            Self::System(why) => write!(f, "the system refuses: {why}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connect { source, .. } | Self::Lost { source, .. } | Self::System(source) => Some(source),
            _ => None,
        }
    }
}

impl From<EnvironmentError> for Error {
    fn from(why: EnvironmentError) -> Self {
        Self::Environment(why)
    }
}

/// A variable that is missing or malformed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnvironmentError {
    /// The variable's name.
    pub name: &'static str,
    /// What is wrong with it; never its value where that is secret.
    pub why: String,
}

impl fmt::Display for EnvironmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; start the program with `towline run`, or set the variable", self.name, self.why)
    }
}

impl std::error::Error for EnvironmentError {}
