//! Which host and which process: who may share segments, and whose segments are left over.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::Pid;

use crate::segment::layout::{BORN, MAGIC, MAGIC_AT, PAGE, PID, PID_SPACE, TO_BORN, TO_PID};
use crate::segment::file::Segment;

/// A process, told apart from later ones with the same number by when it started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub born: u64,
    /// The namespace in which the number counts.
    pub space: u64,
}

impl Process {
    /// This process.
    pub fn me() -> Self {
        let pid = std::process::id();
        let space = fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino());
        Self { pid, born: born(pid).flatten().unwrap_or(0), space }
    }

    /// Its number, if that can be one.
    pub fn number(&self) -> Option<Pid> {
        i32::try_from(self.pid).ok().and_then(Pid::from_raw)
    }

    /// Whether it runs still; `None` if that cannot be told from here.
    pub fn lives(&self, me: &Self) -> Option<bool> {
        if self.space != me.space || me.born == 0 {
            return None;
        }
        Some(born(self.pid)? == Some(self.born))
    }

    /// Whether it has ended, as far as that can be told without a descriptor, and without memory: a later process of its number
    /// passes for it.
    pub fn has_ended(&self, me: &Self) -> bool {
        if self.space != me.space {
            return false;
        }
        let gone = |pid| rustix::process::test_kill_process(pid) == Err(Errno::SRCH);
        if self.number().is_none_or(gone) {
            return true;
        }
        // One that only waits to be reaped runs no program any more. Where nothing is told of processes, nobody does.
        let mut name = [0; 32];
        let mut rest = &mut name[..];
        if me.born == 0 || write!(rest, "/proc/{}/exe", self.pid).is_err() {
            return false;
        }
        let left = rest.len();
        let name = name.get(..name.len() - left).unwrap_or_default();
        let mut first = [MaybeUninit::uninit(); 1];
        let program = rustix::fs::readlinkat_raw(rustix::fs::CWD, name, &mut first);
        matches!(program, Err(Errno::NOENT | Errno::SRCH))
    }
}

/// When a process started; nothing for one that is gone or only waits to be reaped. `None` if that cannot be told, as for want of
/// a descriptor.
///
/// By its first thread, which says the same as the process: where an emulator runs a program for another processor, that makes up
/// what the process says of itself, with another start for each thread, and neither is what others are told.
fn born(pid: u32) -> Option<Option<u64>> {
    match fs::read_to_string(format!("/proc/{pid}/task/{pid}/stat")) {
        Ok(stat) => Some(born_by(&stat)),
        Err(why) if why.kind() == ErrorKind::NotFound || why.raw_os_error() == Some(libc::ESRCH) => Some(None),
        Err(_) => None,
    }
}

fn born_by(stat: &str) -> Option<u64> {
    // The name in brackets may hold anything, brackets included.
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Where segments can be shared: the running kernel and, on it, the file system of the directory, which containers
/// may or may not have in common. Nothing else decides it: futexes in shared files work across all namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The kernel's boot id.
    pub boot: [u8; 16],
    /// Device of the directory.
    pub device: u64,
    /// Inode of the directory.
    pub inode: u64,
}

impl Place {
    /// The place of `directory` on this host.
    pub fn of(directory: &Path) -> std::io::Result<Self> {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let mut boot = [0; 16];
        let mut digits = text.chars().filter_map(|digit| digit.to_digit(16));
        for byte in &mut boot {
            let (high, low) = (digits.next().unwrap_or(0), digits.next().unwrap_or(0));
            *byte = (high << 4 | low) as u8;
        }
        let about = fs::metadata(directory)?;
        Ok(Self { boot, device: about.dev(), inode: about.ino() })
    }
}

/// A number that nobody guesses or draws twice.
pub fn nonce() -> u64 {
    let mut bytes = [0; 8];
    if rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) == Ok(8) {
        return u64::from_ne_bytes(bytes) | 1;
    }
    let hasher = std::hash::BuildHasher::build_hasher(&std::hash::RandomState::new());
    std::hash::Hasher::finish(&hasher) | 1
}

/// Names of segments: they carry user, job and ranks.
#[derive(Clone, Debug)]
pub struct Names {
    directory: PathBuf,
    job: String,
}

impl Names {
    /// Names for a job of this user.
    pub fn new(directory: &Path, job: u64) -> Self {
        Self { directory: directory.to_owned(), job: format!("{}{job:016x}", prefix()) }
    }

    /// The board of a rank.
    pub fn board(&self, rank: u32) -> PathBuf {
        self.directory.join(format!("{}.{rank}", self.job))
    }

    /// The pipe that wakes a rank which sleeps on a file descriptor.
    pub fn pipe(&self, rank: u32) -> PathBuf {
        self.directory.join(format!("{}.{rank}.bell", self.job))
    }

    /// A ring from rank to rank, for short (0) or long (1) messages.
    pub fn ring(&self, from: u32, to: u32, lane: usize) -> PathBuf {
        let lane = if lane == 0 { "eager" } else { "bulk" };
        self.directory.join(format!("{}.{from}-{to}.{lane}", self.job))
    }
}

fn prefix() -> String {
    format!("towline.{}.", rustix::process::geteuid().as_raw())
}

/// Removes what jobs of this user left behind whose processes are gone; returns how many files. What cannot be judged
/// from here (another container's) or is just being made stays.
pub fn sweep(directory: &Path, me: &Process) -> usize {
    let prefix = prefix();
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let mut removed = 0;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with(&prefix)) else { continue };
        let path = entry.path();
        let stale = match name.strip_suffix(".bell") {
            // A pipe follows its board.
            Some(board) => !directory.join(board).exists() && settled(&path),
            // Closing a ring's file would end a lock that this process has on it, as locks of processes do. Whoever made
            // the ring has a board, which nobody locks.
            None => sender(name).is_none_or(|board| gone(&directory.join(board), me)) && left_over(&path, me),
        };
        if stale && fs::remove_file(&path).is_ok() {
            log::info!("removed {}, left behind by a job that is gone", path.display());
            removed += 1;
        }
    }
    removed
}

/// The name of the board of the rank that makes a ring.
fn sender(ring: &str) -> Option<&str> {
    let (ranks, _lane) = ring.rsplit_once('.')?;
    Some(ranks.rsplit_once('-')?.0)
}

/// Whether a board is not there any more, or its maker is not.
fn gone(board: &Path, me: &Process) -> bool {
    !board.exists() || left_over(board, me)
}

/// Whether a segment's maker, and for a ring its receiver too, are gone.
pub fn left_over(path: &Path, me: &Process) -> bool {
    let Ok(segment) = Segment::open(path, PAGE) else { return settled(path) };
    if segment.word(MAGIC_AT).load(core::sync::atomic::Ordering::Acquire) != MAGIC {
        return settled(path);
    }
    let read = |at| segment.word(at).load(core::sync::atomic::Ordering::Relaxed);
    let space = read(PID_SPACE);
    let gone = |pid: u64, born| Process { pid: pid as u32, born, space }.lives(me) == Some(false);
    gone(read(PID), read(BORN)) && (read(TO_PID) == 0 || gone(read(TO_PID), read(TO_BORN)))
}

/// Whether a file is old enough that nobody is just making it.
fn settled(path: &Path) -> bool {
    let age = fs::symlink_metadata(path).and_then(|about| about.modified()).ok().and_then(|then| then.elapsed().ok());
    age.is_some_and(|age| age.as_secs() >= 60)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::process::Command;

    use super::*;

    /// Else a rail takes those of other threads of its process, or its peers', for left over, and removes what they use.
    #[test]
    fn b10_all_are_told_the_same_of_when_a_process_began() {
        let me = Process::me();
        let other = Command::new("cat").arg(format!("/proc/{}/stat", me.pid)).output().unwrap();
        assert_eq!(born_by(&String::from_utf8_lossy(&other.stdout)), Some(me.born));
        let thread = std::thread::spawn(Process::me);
        assert_eq!(thread.join().unwrap(), me);
    }
}
