//! Stale segments: the files of jobs whose processes are gone.

use std::fs;
use std::path::Path;

use super::file::Segment;
use super::layout::{MAGIC, MAGIC_AT, PAGE, PID, PID_NAMESPACE, START_TIME, TO_PID, TO_START_TIME};
use super::names::{sender_of, user_prefix};
use crate::atomics::Ordering;
use crate::host::Process;

/// Removes the files of this user's jobs whose processes are gone, and returns how many there were. Files that cannot be checked
/// from here (those of another container) stay, and so do files that are just being made.
pub fn remove_stale(directory: &Path, me: &Process) -> usize {
    let prefix = user_prefix();
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let mut removed = 0;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with(&prefix)) else { continue };
        let path = entry.path();
        let stale = match name.strip_suffix(".bell") {
            // A pipe goes with its control segment.
            Some(control) => !directory.join(control).exists() && is_settled(&path),
            // Closing a ring's file would release a lock that this process has on it, as `fcntl` locks of processes do. The
            // maker of a ring has a control segment, on which there are no locks, so the control segment is checked first.
            None => sender_of(name).is_none_or(|control| is_gone(&directory.join(control), me)) && is_stale(&path, me),
        };
        if stale && fs::remove_file(&path).is_ok() {
            log::info!("removed {}, left behind by a job whose processes are gone", path.display());
            removed += 1;
        }
    }
    removed
}

/// Whether a control segment does not exist any more, or its maker has ended.
fn is_gone(control: &Path, me: &Process) -> bool {
    !control.exists() || is_stale(control, me)
}

/// Whether a segment's maker has ended and, for a ring, its receiver too.
fn is_stale(path: &Path, me: &Process) -> bool {
    let Ok(segment) = Segment::open(path, PAGE) else { return is_settled(path) };
    if segment.word(MAGIC_AT).load(Ordering::Acquire) != MAGIC {
        return is_settled(path);
    }
    let read = |at| segment.word(at).load(Ordering::Relaxed);
    let pid_namespace = read(PID_NAMESPACE);
    let gone =
        |pid: u64, start_time| Process { pid: pid as u32, start_time, pid_namespace }.is_running(me) == Some(false);
    gone(read(PID), read(START_TIME)) && (read(TO_PID) == 0 || gone(read(TO_PID), read(TO_START_TIME)))
}

/// Whether a file is so old that no process is still creating it.
fn is_settled(path: &Path) -> bool {
    let age = fs::symlink_metadata(path).and_then(|about| about.modified()).ok().and_then(|then| then.elapsed().ok());
    age.is_some_and(|age| age.as_secs() >= 60)
}
