//! Why a handshake failed.

use std::fmt;
use std::io;

use towline_net::{EncryptionMismatch, Mismatch};

use crate::wire::hello::BadHello;

/// Why a connection was not established.
#[derive(Debug)]
pub(crate) enum Failure {
    System(io::Error),
    /// The remote end closed the connection.
    Closed,
    Hello(BadHello),
    /// The remote end belongs to another job, or is another rank or instance.
    Identity(Mismatch),
    /// The remote end belongs to another link.
    Link,
    Key,
    Role,
    /// A recorded hello was replayed too often.
    Replayed,
    Encryption(EncryptionMismatch),
    /// The named step did not happen in time.
    TimedOut(&'static str),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(error) => error.fmt(f),
            Self::Closed => f.write_str("the remote end closed the connection during the hello"),
            Self::Hello(bad) => bad.fmt(f),
            Self::Identity(mismatch) => write!(f, "the remote end has another {mismatch}"),
            Self::Link => f.write_str("the remote end belongs to another link of its rank"),
            Self::Key => f.write_str("the remote end does not know the job's key"),
            Self::Role => f.write_str("the remote end sent a message of the wrong role"),
            Self::Replayed => {
                f.write_str("the remote end repeats an old hello, and too many were repeated in this second")
            }
            Self::Encryption(mismatch) => mismatch.fmt(f),
            Self::TimedOut(step) => write!(f, "no {step} in time"),
        }
    }
}
