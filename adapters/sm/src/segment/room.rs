//! How much room there is for segments.

use std::path::Path;

use rustix::process::Resource;

/// The room for segments in a file system. `None` stands for no limit, and for a limit that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Room {
    /// Bytes that are free.
    pub bytes: Option<u64>,
    /// Files that can still be made.
    pub files: Option<u64>,
}

impl Room {
    /// The room in the file system of a directory.
    pub fn of(directory: &Path) -> Self {
        let Ok(about) = rustix::fs::statvfs(directory) else { return Self::default() };
        // A file system in memory without a limit says that it has 0 blocks or 0 files.
        Self {
            bytes: (about.f_blocks != 0).then(|| about.f_bavail.saturating_mul(about.f_frsize)),
            files: (about.f_files != 0).then_some(about.f_favail),
        }
    }
}

/// Bytes of the longest file that this process may make. The kernel ends a process with a signal that makes a longer one.
pub fn file_limit() -> Option<u64> {
    rustix::process::getrlimit(Resource::Fsize).current
}
