//! A rank's process, which is that and no other, though its number may be another's later.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A handle on a process that another one started for us.
#[derive(Debug)]
pub struct Process {
    number: u64,
    handle: OwnedFd,
}

impl Process {
    /// The process of that number, which `parent` has started; why there is none.
    pub fn open(number: u64, parent: u32) -> Result<Self, String> {
        let pid = i32::try_from(number).ok().and_then(Pid::from_raw).ok_or(format!("{number} is no process"))?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).map_err(|why| format!("process {number}: {why}"))?;
        let this = Self { number, handle };
        let is_child = this.stat_field(1).is_some_and(|its| its == parent.to_string());
        if is_child { Ok(this) } else { Err(format!("process {number} is not one that the launcher started")) }
    }

    /// Sends a signal; whether it was there to take it.
    pub fn signal(&self, signal: Signal) -> bool {
        self.is_alive() && pidfd_send_signal(&self.handle, signal).is_ok()
    }

    /// Whether it stands still.
    pub fn is_stopped(&self) -> bool {
        self.stat_field(0).is_some_and(|state| state == "T")
    }

    /// Ended ones still take signals until somebody has asked for their status.
    fn is_alive(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.handle, PollFlags::IN)], Some(&at_once)) == Ok(0)
    }

    /// What the system says of it behind its name: its state, its parent.
    fn stat_field(&self, at: usize) -> Option<String> {
        let about = std::fs::read_to_string(format!("/proc/{}/stat", self.number)).ok()?;
        let word = about.rsplit_once(')')?.1.split_whitespace().nth(at)?.to_owned();
        // It is there now, so the number was its own then.
        self.is_alive().then_some(word)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_signal_is_one_only_to_a_process_that_is_there() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let own = std::process::id();
        assert!(Process::open(child.id().into(), own + 1).is_err(), "somebody else's child");
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
        // It has ended, and nobody has asked for its status yet.
        assert!(!process.signal(Signal::STOP) && !process.is_stopped());
        child.wait().unwrap();
        assert!(!process.signal(Signal::STOP));
        assert!(Process::open(child.id().into(), own).is_err());
    }
}
