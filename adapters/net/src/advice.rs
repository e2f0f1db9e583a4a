//! What to do about an error of the operating system.

use std::io;

/// What a user can do about an error of the operating system, to be appended to its text. Empty where the text says enough.
///
/// ```
/// let full = std::io::Error::from_raw_os_error(libc::EMFILE);
/// assert!(towline_net::advice(&full).contains("ulimit -n"));
/// ```
pub fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EMFILE) => {
            "; raise this process's limit of open files (`ulimit -n`), or use fewer ranks on this host"
        }
        Some(libc::ENFILE) => "; raise the system's limit of open files (fs.file-max), or use fewer ranks on this host",
        Some(libc::EADDRINUSE) => "; another program has the port: choose other ports, or 0 for any",
        Some(libc::EADDRNOTAVAIL) => "; this host does not have that address now: choose another interface",
        Some(libc::EACCES | libc::EPERM) => "; ask the administrator for the right, or choose what needs none",
        Some(libc::ENOMEM | libc::ENOBUFS) => "; free memory, or use fewer ranks on this host",
        Some(libc::EAGAIN) => {
            "; raise the limit of processes and threads (`ulimit -u`), or use fewer ranks on this host"
        }
        Some(libc::ENOSPC) => "; free room in that file system, or choose another",
        Some(libc::EROFS) => "; choose a file system that can be written to",
        Some(libc::ENOENT) => "; make it, or choose another",
        _ => "",
    }
}
