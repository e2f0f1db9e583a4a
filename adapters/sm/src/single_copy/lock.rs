//! The lock on a ring's file, by which the kernel names the ring's maker.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;

/// Opens a ring's file and locks it. The lock is held until any descriptor of the file is closed in this process. `None`
/// where the file cannot be locked.
pub(super) fn acquire(path: &Path) -> Option<File> {
    let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
    let lock = whole_file();
    // SAFETY: the descriptor is open and the lock is a complete one; the kernel only reads it.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) } != 0 {
        return None;
    }
    Some(file)
}

/// The process that holds the lock on a file, as the kernel says. To be called before the file is opened otherwise: where
/// that process is this one, closing the first descriptor releases the lock, as `fcntl` locks of processes do.
///
/// # Errors
/// Those of the system, and where no process of this namespace holds the lock.
pub fn holder(path: &Path) -> std::io::Result<libc::pid_t> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut lock = whole_file();
    // Asked as the owner of an open file and not as a process, so that a lock of this process is reported, too.
    // SAFETY: the descriptor is open and the lock is a complete one, which the kernel writes to.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    if lock.l_type == libc::F_UNLCK as libc::c_short || lock.l_pid <= 0 {
        return Err(std::io::Error::other("the file is not locked, or its holder has no process id in this namespace"));
    }
    Ok(lock.l_pid)
}

/// A write lock on all of a file.
fn whole_file() -> libc::flock {
    // SAFETY: plain numbers, for which 0 is a value; of all systems' fields only those below matter.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}
