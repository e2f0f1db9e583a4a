//! The limit of open files. A launcher needs several files for every rank.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::error::LaunchError;

/// Spare files, for starts in progress and connections of processes without the key.
const SPARE: u64 = 64;

/// The limit with which this process was started, if it was raised. Ranks get this limit.
static ORIGINAL: OnceLock<Rlimit> = OnceLock::new();

/// Makes sure that `files` more files can be open, for `ranks` ranks in this process. Raises the limit if necessary.
pub(super) fn raise_limit(files: u64, ranks: usize) -> Result<(), LaunchError> {
    let limit = getrlimit(Resource::Nofile);
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as u64;
    let needed = files.saturating_add(open).saturating_add(SPARE);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
    if enough(limit.current) {
        return Ok(());
    }
    if !enough(limit.maximum) {
        let limit = limit.maximum.unwrap_or(u64::MAX);
        return Err(LaunchError::TooFewFiles { ranks, needed, limit });
    }
    ORIGINAL.get_or_init(|| limit);
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .map_err(|why| LaunchError::System { what: "raise the limit of open files", source: why.into() })
}

/// Restores the limit from before [`raise_limit`], since programs may rely on a low one. Called between fork and exec;
/// async-signal-safe.
pub(super) fn restore(before: Option<&Rlimit>) -> io::Result<()> {
    before.map_or(Ok(()), |limit| Ok(setrlimit(Resource::Nofile, *limit)?))
}

/// The limit for [`restore`].
pub(super) fn original() -> Option<Rlimit> {
    ORIGINAL.get().copied()
}
