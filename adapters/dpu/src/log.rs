//! The log of a device's firmware: the bytes that `defmt` has encoded, which its decoder prints.

use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, fcntl_lock};
use towline_window::host::AttachError;
use towline_window::host_log::HostLog;
use towline_window::log::Taken;

use crate::errors::OpenError;
use crate::mapping::Mapping;

/// The log of a window. It needs no session, so the device may serve another process, and its firmware may have failed. One process at
/// a time reads a log. It is used by one thread at a time.
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
    /// [`OpenError`]; [`OpenError::LogInUse`] if another process reads it.
    pub fn open(path: &Path, offset: u64) -> Result<Self, OpenError> {
        let file = |why| OpenError::File(path.into(), why);
        let mapping = Mapping::open(path, offset).map_err(file)?;
        match fcntl_lock(mapping.file(), FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => return Err(OpenError::LogInUse(path.into())),
            Err(why) => return Err(file(why.into())),
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

fn log_of(mapping: &Mapping, path: &Path) -> Result<HostLog<'static>, OpenError> {
    // SAFETY: the log is not used after its mapping.
    let memory = unsafe { mapping.memory() }.ok_or_else(|| OpenError::NoWindow(path.into()))?;
    let log = HostLog::open(memory).map_err(|why| OpenError::Attach(path.into(), why))?;
    log.ok_or_else(|| OpenError::NoLog(path.into()))
}
