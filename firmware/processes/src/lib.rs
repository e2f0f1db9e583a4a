//! Memory of the host of a DPU that is a process of the same machine, as the host: the kernel copies it (`process_vm_readv` and
//! `process_vm_writev`).
//!
//! The host describes its memory by 24 bytes ([`DESCRIPTION`]): `PID` and a zero, its process id (32 bits), the address of a word of 64
//! bits in its memory, and the value of that word, all little-endian. So this process finds out whether it reaches the memory, and
//! whether both mean the same process by the number. The process must have the file of the window open: a host cannot name any other
//! process, whose memory this one may reach. A process that has ended is not mistaken for a later one with its number.

mod copy;

use std::fs::{self, Metadata};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use offload::host_memory::{BadMemory, HostMemory};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Bytes of a description.
pub const DESCRIPTION: usize = 24;
/// What a description begins with.
const MAGIC: [u8; 4] = *b"PID\0";
/// The most processes at a time. There is one for each region.
const MOST: usize = 64;

/// How long a process counts as running after it was seen to run. No system gives a number to another process so soon.
const TRUSTED: Duration = Duration::from_millis(1);

/// A process whose memory is reached.
#[derive(Debug)]
struct Process {
    number: i32,
    /// It is ready when the process has ended.
    end: OwnedFd,
    /// When it was seen to run.
    seen: Instant,
}

impl Process {
    /// Whether it runs still, so that its number means this process.
    fn runs(&self) -> bool {
        let mut fds = [PollFd::new(&self.end, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
    }

    /// Whether it runs still, or has run a moment ago.
    fn runs_now(&mut self) -> bool {
        let now = Instant::now();
        if now.duration_since(self.seen) < TRUSTED {
            return true;
        }
        let runs = self.runs();
        if runs {
            self.seen = now;
        }
        runs
    }

    /// Whether it has this file open.
    fn has_open(&self, file: (u64, u64)) -> bool {
        let Ok(files) = fs::read_dir(format!("/proc/{}/fd", self.number)) else { return false };
        // A link here leads to the open file.
        let is_it = |path: std::path::PathBuf| fs::metadata(path).is_ok_and(|found| identity(&found) == file);
        files.flatten().any(|entry| is_it(entry.path()))
    }
}

/// What tells a file from all others of the machine.
fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Memory of processes that have a window's file open.
#[derive(Debug)]
pub struct Processes {
    window: (u64, u64),
    opened: Mutex<Vec<Option<Process>>>,
}

impl Processes {
    /// Memory of processes that have the file of this window open.
    pub fn new(window: &Metadata) -> Self {
        Self { window: identity(window), opened: Mutex::new(Vec::new()) }
    }

    /// Calls `copy` with the number of a process that runs.
    fn with(&self, opened: u32, copy: impl FnOnce(i32) -> Option<()>) -> Result<(), BadMemory> {
        let mut opened_all = self.opened.lock().map_err(|_| BadMemory)?;
        let process = opened_all.get_mut(opened as usize).and_then(Option::as_mut).ok_or(BadMemory)?;
        if process.runs_now() { copy(process.number).ok_or(BadMemory) } else { Err(BadMemory) }
    }
}

impl HostMemory for Processes {
    fn open(&self, description: &[u8]) -> Option<u32> {
        let (magic, rest) = description.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (address, rest) = rest.split_first_chunk()?;
        let (value, rest) = rest.split_first_chunk()?;
        if *magic != MAGIC || !rest.is_empty() {
            return None;
        }
        let (number, address): (i32, _) = (i32::from_le_bytes(*number), u64::from_le_bytes(*address));
        if number <= 0 {
            return None;
        }
        let end = pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()?;
        let process = Process { number, end, seen: Instant::now() };
        let mut word: [u8; 8] = [0; 8];
        copy::read(number, address, &mut word)?;
        // It has run during all of this.
        if !process.has_open(self.window) || word != *value || !process.runs() {
            return None;
        }
        let mut opened = self.opened.lock().ok()?;
        if let Some(place) = opened.iter().position(Option::is_none) {
            *opened.get_mut(place)? = Some(process);
            return u32::try_from(place).ok();
        }
        if opened.len() == MOST {
            return None;
        }
        opened.push(Some(process));
        u32::try_from(opened.len().wrapping_sub(1)).ok()
    }

    fn close(&self, opened: u32) {
        if let Ok(mut all) = self.opened.lock()
            && let Some(process) = all.get_mut(opened as usize)
        {
            *process = None;
        }
    }

    fn read(&self, opened: u32, from: u64, into: &mut [u8]) -> Result<(), BadMemory> {
        self.with(opened, |process| copy::read(process, from, into))
    }

    fn write(&self, opened: u32, from: &[u8], to: u64) -> Result<(), BadMemory> {
        self.with(opened, |process| copy::write(process, from, to))
    }
}
