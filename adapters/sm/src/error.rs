//! Why a rail or a segment could not be made.

use std::path::PathBuf;
use std::{fmt, io};

use towline_core::error::Blame;

/// A rail could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// A setting cannot work; says which and why.
    Config(String),
    /// The file system in memory has no room for a segment.
    NoRoom {
        /// The segment.
        path: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// A rank of this number in this job is running already.
    Taken(PathBuf),
    /// A segment is there, but not in the form expected of it.
    Malformed(PathBuf),
    /// The operating system refused.
    System {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Its answer.
        error: io::Error,
    },
}

impl OpenError {
    /// Who has to act.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Config(_) | Self::Taken(_) => Blame::Caller,
            Self::Malformed(_) => Blame::Peer,
            Self::NoRoom { .. } | Self::System { .. } => Blame::Resource,
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(what) => write!(f, "shared memory rail: {what}"),
            Self::NoRoom { path, bytes } => write!(
                f,
                "no room for the {bytes} bytes of {}: enlarge that file system, or choose smaller rings or fewer ranks",
                path.display()
            ),
            Self::Taken(path) => {
                write!(f, "{} belongs to a running process: two ranks have the same number or job id", path.display())
            }
            Self::Malformed(path) => write!(f, "{} is no segment of this version", path.display()),
            Self::System { doing, path, error } => write!(f, "cannot {doing} {}: {error}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { error, .. } => Some(error),
            _ => None,
        }
    }
}
