//! Errors between a rank and its launcher.

use std::time::Duration;
use std::{fmt, io};

use towline_core::error::Blame;
use towline_core::modex::{SendError, SetError};
use towline_net::advice;

/// Why a step of the bootstrap failed.
#[non_exhaustive]
pub enum Error {
    /// A variable of the environment is missing or malformed. The launcher, or the user who set the variable, is at
    /// fault.
    Environment(EnvironmentError),
    /// The rank could not connect to the server.
    Connect {
        /// The address that was tried.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The server refused this rank.
    Refused {
        /// The server's address.
        address: String,
        /// The reason that the server gave.
        why: String,
    },
    /// The deadline passed.
    Timeout {
        /// The step that did not end in time, and which ranks are missing.
        step: String,
        /// How long this rank has waited.
        waited: Duration,
    },
    /// The connection to the server broke, so the launcher has ended.
    Lost {
        /// The step that was interrupted.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The launcher or the server broke the protocol.
    Protocol {
        /// A description of the wrong message.
        what: String,
    },
    /// A rank has ended, so this rank cannot complete a collective step that needs it.
    PeerGone {
        /// The rank that has ended.
        rank: u32,
        /// The step in which it is missing.
        step: &'static str,
    },
    /// The caller has already called [`finish`](crate::Job::finish).
    Finished,
    /// A component cannot be published.
    Publish(SendError),
    /// Publications that the caller has [carried](crate::Job::carried) here cannot be accepted.
    Carried(String),
    /// The exchange of another launcher or runtime has failed: see [`Job::over`](crate::Job::over).
    Exchange {
        /// The step that needs it.
        step: &'static str,
        /// What the exchange says.
        why: String,
    },
    /// A publication after the exchange, in a job whose exchange carries publications once.
    TooLate,
    /// The system gave no random numbers or refused a socket option.
    System(io::Error),
}

impl Error {
    /// Which side is at fault, and therefore has to act.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Environment(_) | Self::Finished | Self::TooLate | Self::Carried(_) => Blame::Caller,
            Self::Publish(why) => why.blame(),
            Self::System(_) => Blame::Resource,
            _ => Blame::Peer,
        }
    }

    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        Self::Protocol { what: what.into() }
    }

    pub(crate) fn exchange(step: &'static str, why: impl Into<String>) -> Self {
        Self::Exchange { step, why: why.into() }
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
            Self::Timeout { step, waited } => write!(
                f,
                "{step}: gave up after {:.1} s; look at the output of the ranks that are missing, or allow more time by \
                 TOWLINE_STARTUP_TIMEOUT_MS",
                waited.as_secs_f64()
            ),
            Self::Lost { step, source } => {
                write!(f, "{step}: the connection to the launcher broke: {source}; the launcher has probably ended")
            }
            Self::Protocol { what } => write!(
                f,
                "the launcher broke the protocol: {what}; use the same version of Towline for launcher and ranks"
            ),
            Self::PeerGone { rank, step } => {
                write!(f, "{step}: rank {rank} has ended and will not take part; its output says why")
            }
            Self::Finished => f.write_str(
                "this rank has already called `finish`, so it can take no further part in the job: call it last",
            ),
            Self::Publish(why) => why.fmt(f),
            Self::Carried(why) => write!(
                f,
                "the publications of another process cannot be accepted: {why}; pass the bytes of that process unchanged, and give \
                 each process a number of its own"
            ),
            Self::Exchange { step, why } => write!(f, "{step}: the exchange between the ranks has failed: {why}"),
            Self::TooLate => f.write_str(
                "a rank publishes before the exchange where another launcher carries it, since it does so once: publish earlier, or start \
                 the job by `towline run`",
            ),
            Self::System(why) => {
                write!(f, "the system refused random numbers, or to wait for a connection: {why}{}", advice(why))
            }
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

towline_core::debug_as_display!(Error);

impl From<EnvironmentError> for Error {
    fn from(why: EnvironmentError) -> Self {
        Self::Environment(why)
    }
}

/// An environment variable that is missing or malformed.
#[derive(Clone, PartialEq, Eq)]
pub struct EnvironmentError {
    /// The variable's name.
    pub name: &'static str,
    /// Why the value is invalid. The text never contains the value of a secret.
    pub why: String,
}

impl fmt::Display for EnvironmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; start the program with `towline run`, or set the variable correctly", self.name, self.why)
    }
}

impl std::error::Error for EnvironmentError {}

towline_core::debug_as_display!(EnvironmentError);
