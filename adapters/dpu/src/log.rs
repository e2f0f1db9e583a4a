//! The log of a device's firmware: the bytes that `defmt` has encoded, which its decoder prints.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use towline_window::host::AttachError;
use towline_window::host_log::HostLog;
use towline_window::log::Taken;

use crate::errors::OpenError;
use crate::mapping::Mapping;

/// The log of a window. It needs no session, so the device may serve another process, and its firmware may have failed. One reader at
/// a time has a log. It is used by one thread at a time.
#[derive(Debug)]
pub struct Log {
    log: HostLog<'static>,
    /// Dropped after the log, which uses its memory.
    mapping: Mapping,
    path: PathBuf,
}

/// What a read has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Found {
    /// So many bytes, which may be none.
    Bytes(usize),
    /// A position that cannot be. The bytes until now are skipped.
    Skipped,
    /// The firmware has started again, and its new log is read from now on, or starts now.
    Restarted,
}

impl Log {
    /// Opens the log of the window that begins at an offset in a file. It begins with what nobody has read.
    ///
    /// # Errors
    /// [`OpenError`]; [`OpenError::LogInUse`] if it has another reader, in this process or in another one.
    pub fn open(path: &Path, offset: u64) -> Result<Self, OpenError> {
        let file = |why| OpenError::File(path.into(), why);
        let mapping = Mapping::open(path, offset).map_err(file)?;
        if !set_lock(mapping.file(), libc::F_WRLCK).map_err(file)? {
            return Err(OpenError::LogInUse(path.into()));
        }
        if mapping.is_too_small() {
            return Err(OpenError::NoWindow(path.into()));
        }
        let log = log_of(&mapping, path)?;
        Ok(Self { log, mapping, path: path.into() })
    }

    /// Copies the next bytes of the log, and gives their place back to the device.
    ///
    /// # Errors
    /// [`OpenError`] if the firmware has started again with a log that cannot be read.
    pub fn read(&mut self, into: &mut [u8]) -> Result<Found, OpenError> {
        match self.log.read(into) {
            Some(Taken::Bytes(bytes)) => Ok(Found::Bytes(bytes)),
            Some(Taken::Skipped) => Ok(Found::Skipped),
            None => match log_of(&self.mapping, &self.path) {
                Ok(log) => {
                    self.log = log;
                    Ok(Found::Restarted)
                }
                Err(OpenError::Attach(_, AttachError::NotReady)) => Ok(Found::Bytes(0)),
                Err(why) => Err(why),
            },
        }
    }

    /// Whether the firmware has failed, so that nothing more comes before it starts again.
    pub fn has_failed(&self) -> bool {
        self.log.has_failed()
    }

    /// Frames that the log had no room for since the firmware has started, modulo 2^32.
    pub fn lost(&self) -> u32 {
        self.log.lost()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // As in the drop of a mapping: forked children have the same open file.
        if self.mapping.is_own() {
            let _ = set_lock(self.mapping.file(), libc::F_UNLCK);
        }
    }
}

/// Locks the log of a window's file (`F_WRLCK`), or ends the lock (`F_UNLCK`). Returns `false` if another reader has locked it. The lock
/// belongs to the open file. A lock of the process would not keep a second reader of the same process out, and would end when the process
/// closes any descriptor of the file.
fn set_lock(file: &File, kind: libc::c_int) -> io::Result<bool> {
    // SAFETY: plain numbers, for which 0 is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_type, lock.l_whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    // SAFETY: the descriptor is open and the lock is a complete one, of the whole file; the kernel only reads it.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        why if matches!(why.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        why => Err(why),
    }
}

fn log_of(mapping: &Mapping, path: &Path) -> Result<HostLog<'static>, OpenError> {
    // SAFETY: the log is not used after its mapping.
    let memory = unsafe { mapping.memory() }.ok_or_else(|| OpenError::NoWindow(path.into()))?;
    let log = HostLog::open(memory).map_err(|why| OpenError::Attach(path.into(), why))?;
    log.ok_or_else(|| OpenError::NoLog(path.into()))
}
