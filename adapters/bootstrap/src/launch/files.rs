//! The limit of open files, of which a launcher needs some for every rank.

use std::io;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::error::LaunchError;

/// Files that are open for a short time or for purposes of their own: starts under way, connections of strangers.
const SPARE: u64 = 64;

/// The limit that this process was started with, where it was raised: ranks are to have that one.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Makes sure that so many more files can be open, for a job with so many ranks in this process's hands.
pub(super) fn make_room(files: u64, ranks: usize) -> Result<(), LaunchError> {
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
    BEFORE.get_or_init(|| limit);
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: limit.maximum })
        .map_err(|why| LaunchError::System { what: "raise the limit of open files", source: why.into() })
}

/// What a process that is about to become another program calls to get back the limit from before [`make_room`]: programs
/// may count on a low one. Async-signal-safe.
pub(super) fn give_back(before: Option<&Rlimit>) -> io::Result<()> {
    before.map_or(Ok(()), |limit| Ok(setrlimit(Resource::Nofile, *limit)?))
}

/// For [`give_back`].
pub(super) fn before() -> Option<Rlimit> {
    BEFORE.get().copied()
}
