//! A handle on the process of a rank. It stays valid although the process id may be reused.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A handle on a process that another process has started for this one.
#[derive(Debug)]
pub struct Process {
    number: u64,
    handle: OwnedFd,
}

impl Process {
    /// Opens the process with id `number`, which `parent` has started. The error says why it is not one.
    pub fn open(number: u64, parent: u32) -> Result<Self, String> {
        let pid = i32::try_from(number).ok().and_then(Pid::from_raw).ok_or(format!("{number} is not a process id"))?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).map_err(|why| format!("process {number}: {why}"))?;
        let this = Self { number, handle };
        let is_child = this.stat_field(1).is_some_and(|its| its == parent.to_string());
        if is_child { Ok(this) } else { Err(format!("process {number} was not started by the launcher")) }
    }

    /// Sends a signal. Returns whether the process was alive to get it.
    pub fn signal(&self, signal: Signal) -> bool {
        self.is_alive() && pidfd_send_signal(&self.handle, signal).is_ok()
    }

    /// Whether it is stopped.
    pub fn is_stopped(&self) -> bool {
        self.stat_field(0).is_some_and(|state| state == "T")
    }

    /// Whether it is alive. A process that has ended still accepts signals until its parent has waited for it.
    fn is_alive(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], Some(&at_once)) == Ok(0)
    }

    /// A field of `/proc/PID/stat` after the name: 0 is the state, 1 the parent.
    fn stat_field(&self, at: usize) -> Option<String> {
        let about = std::fs::read_to_string(format!("/proc/{}/stat", self.number)).ok()?;
        let word = about.rsplit_once(')')?.1.split_whitespace().nth(at)?.to_owned();
        // The process is alive now, so the id belonged to it when the file was read.
        self.is_alive().then_some(word)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn only_a_live_process_gets_signals() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let own = std::process::id();
        assert!(Process::open(child.id().into(), own + 1).is_err(), "a child of another process");
        let process = Process::open(child.id().into(), own).unwrap();
        assert!(!process.is_stopped());
        assert!(process.signal(Signal::STOP));
        while !process.is_stopped() {
            std::thread::yield_now();
        }
        assert!(process.signal(Signal::KILL));
        while process.is_alive() {
            std::thread::yield_now();
        }
        // The process has ended, and its parent has not waited for it yet.
        assert!(!process.signal(Signal::STOP) && !process.is_stopped());
        child.wait().unwrap();
        assert!(!process.signal(Signal::STOP));
        assert!(Process::open(child.id().into(), own).is_err());
    }
}
