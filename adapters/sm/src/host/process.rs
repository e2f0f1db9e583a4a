//! The identity of a process, and whether it still runs.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::process::Pid;

/// A process, told apart from later ones with the same process id by its start time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// When it started, in clock ticks since boot; 0 if unknown.
    pub start_time: u64,
    /// Inode of the namespace in which the process id is valid.
    pub pid_namespace: u64,
}

impl Process {
    /// This process.
    pub fn current() -> Self {
        let pid = std::process::id();
        let pid_namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino());
        Self { pid, start_time: start_time(pid).flatten().unwrap_or(0), pid_namespace }
    }

    /// Its process id, if the number can be one.
    pub fn raw_pid(&self) -> Option<Pid> {
        i32::try_from(self.pid).ok().and_then(Pid::from_raw)
    }

    /// Whether it still runs; `None` if `me` cannot tell.
    pub fn is_running(&self, me: &Self) -> Option<bool> {
        if self.pid_namespace != me.pid_namespace || me.start_time == 0 {
            return None;
        }
        Some(start_time(self.pid)? == Some(self.start_time))
    }

    /// Whether it has ended, as far as `me` can tell without opening a descriptor and without allocating memory. `false` where
    /// `me` cannot tell. If a later process has the same process id, that one is mistaken for it.
    pub fn has_ended(&self, me: &Self) -> bool {
        if self.pid_namespace != me.pid_namespace {
            return false;
        }
        let gone = |pid| rustix::process::test_kill_process(pid) == Err(Errno::SRCH);
        if self.raw_pid().is_none_or(gone) {
            return true;
        }
        // A zombie, which only waits to be reaped, has no program any more. Where `/proc` is not readable (`start_time` is 0), a
        // zombie cannot be told from a running process.
        let mut name = [0; 32];
        let mut rest = &mut name[..];
        if me.start_time == 0 || write!(rest, "/proc/{}/exe", self.pid).is_err() {
            return false;
        }
        let left = rest.len();
        let name = name.get(..name.len() - left).unwrap_or_default();
        let mut first = [MaybeUninit::uninit(); 1];
        let program = rustix::fs::readlinkat_raw(rustix::fs::CWD, name, &mut first);
        matches!(program, Err(Errno::NOENT | Errno::SRCH))
    }
}

/// When a process started, in clock ticks since boot; `Some(None)` if it has ended or is a zombie. `None` if that cannot be read,
/// for example because no descriptor is free.
///
/// This reads the entry of the process's first thread, which started with the process. An emulator of another processor makes up
/// the file `/proc/{pid}/stat` that a process reads about itself, with another start time for each thread, while other processes
/// read the kernel's value. It leaves the entries of threads as they are.
fn start_time(pid: u32) -> Option<Option<u64>> {
    match fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")) {
        Ok(stat) => Some(start_time_in(&stat)),
        Err(why) if why.kind() == ErrorKind::NotFound || why.raw_os_error() == Some(libc::ESRCH) => Some(None),
        Err(_) => None,
    }
}

/// The start time in the text of a `stat` file of `/proc`.
fn start_time_in(stat: &str) -> Option<u64> {
    // The name in brackets may hold anything, brackets included.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::process::Command;

    use super::*;

    /// Otherwise a rail takes the segments of other threads of its process, or of its peers, for stale, and removes files
    /// that are in use.
    #[test]
    fn b10_all_threads_and_processes_read_the_same_start_time() {
        let me = Process::current();
        let other = Command::new("cat").arg(format!("/proc/{}/stat", me.pid)).output().unwrap();
        assert_eq!(start_time_in(&String::from_utf8_lossy(&other.stdout)), Some(me.start_time));
        let thread = std::thread::spawn(Process::current);
        assert_eq!(thread.join().unwrap(), me);
    }
}
