//! Why a rail or a segment could not be made.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use towline_core::error::Blame;

/// A rail could not be opened.
#[non_exhaustive]
pub enum OpenError {
    /// A setting is impossible; the text names it and says why.
    Config(String),
    /// The file system in memory has no room for a segment.
    NoRoom {
        /// The segment.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// Bytes that are free there; `None` where that is not known.
        free_bytes: Option<u64>,
        /// Files that can still be made there; `None` where that is not limited, or not known.
        free_files: Option<u64>,
    },
    /// A segment would be longer than the limit on the size of files of this process (`ulimit -f`).
    FileLimit {
        /// The segment.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A rank of this number in this job is running already; the path is that of its control segment.
    Taken(PathBuf),
    /// A segment exists, but does not have the expected form.
    Malformed(PathBuf),
    /// The operating system refused.
    System {
        /// The operation that failed.
        doing: &'static str,
        /// The file it was tried on.
        path: PathBuf,
        /// The operating system's answer.
        error: io::Error,
    },
}

impl OpenError {
    /// The party that has to act.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Config(_) | Self::Taken(_) => Blame::Caller,
            Self::Malformed(_) => Blame::Peer,
            Self::NoRoom { .. } | Self::FileLimit { .. } | Self::System { .. } => Blame::Resource,
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(what) => write!(f, "shared memory rail: {what}"),
            Self::NoRoom { path, bytes, free_bytes, free_files } => {
                // The directory and not the file, so that the text is the same for all ranks.
                let directory = directory_of(path).display();
                if *free_files == Some(0) {
                    return write!(
                        f,
                        "no further file can be made in {directory}, since its file system has no free inode: raise their number (the \
                         mount option nr_inodes), remove files there, use another one (TOWLINE_SM_DIRECTORY), or fewer ranks"
                    );
                }
                write!(f, "no room for {bytes} bytes in {directory}: ")?;
                match free_bytes {
                    Some(free) => write!(f, "{free} bytes are free there")?,
                    None => f.write_str("the file system is full")?,
                }
                f.write_str(
                    ". Enlarge that file system (for a container: `--shm-size`), use another one (TOWLINE_SM_DIRECTORY), \
                     or fewer ranks, or smaller rings (TOWLINE_SM_EAGER_RING_BYTES, TOWLINE_SM_BULK_RING_BYTES)",
                )
            }
            Self::FileLimit { path, bytes, limit } => write!(
                f,
                "a file in {} needs {bytes} bytes, but files of this process may have at most {limit}: raise the limit of file \
                 sizes (ulimit -f)",
                directory_of(path).display()
            ),
            Self::Taken(path) => write!(
                f,
                "{} belongs to a running process: give each rank a number of its own, and each job a job id of its own",
                path.display()
            ),
            Self::Malformed(path) => write!(
                f,
                "{} is not a segment of this version of Towline: all ranks of a job must run the same version",
                path.display()
            ),
            Self::System { doing, path, error } => write!(
                f,
                "cannot {doing} {}: {error}; check the directory (TOWLINE_SM_DIRECTORY) and the limits of this process",
                path.display()
            ),
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

fn directory_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

towline_core::debug_as_display!(OpenError);

/// The error for a system call that failed on `path`.
pub(crate) fn system_error(doing: &'static str, path: &Path, error: io::Error) -> OpenError {
    OpenError::System { doing, path: path.to_owned(), error }
}
