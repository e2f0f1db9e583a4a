//! What whoever starts the processes of a host does for one that has died: it ends the session that this process had with its device.
//!
//! Then the device forgets all that the session began, and tells other devices. Without this, the device learns of the death when
//! the next process opens its window.

use std::io;
use std::path::{Path, PathBuf};

use towline_window::atomics::Ordering;
use towline_window::header::at;
use towline_window::host::end_abandoned;
use towline_window::memory::Memory;

use crate::doorbell::Doorbell;
use crate::mapping::Mapping;

/// A window that is watched. It is never the host of its device.
#[derive(Debug)]
pub struct Supervisor {
    memory: Memory<'static>,
    mapping: Mapping,
    path: PathBuf,
}

impl Supervisor {
    /// Watches the window that begins at an offset in a file.
    ///
    /// # Errors
    /// Those of the operating system, and if the file is too small.
    pub fn open(path: &Path, offset: u64) -> io::Result<Self> {
        let mapping = Mapping::open(path, offset)?;
        // SAFETY: the memory is used by this value only, and not after its mapping.
        let memory = unsafe { mapping.memory() }.filter(|_| !mapping.is_too_small());
        let memory = memory.ok_or_else(|| io::Error::other("it is too small for a window"))?;
        Ok(Self { memory, mapping, path: path.into() })
    }

    /// Ends the session that the window has if its process has died. Returns whether it has ended one.
    ///
    /// A window without a session is not locked, so a process that opens it for the first time never finds it in use for this reason.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn end_abandoned(&self) -> io::Result<bool> {
        // The window has a header, so its words can be read.
        let wants = || self.memory.word(at::WANTED).is_ok_and(|wanted| wanted.load(Ordering::Acquire) != 0);
        if !wants() || !self.mapping.lock()? {
            return Ok(false);
        }
        // The process may have ended its session between the look and the lock.
        let is_abandoned = wants();
        if is_abandoned {
            end_abandoned(&self.memory);
            // The device may sleep. One without a doorbell does not.
            if let Ok(doorbell) = Doorbell::open(&self.path) {
                doorbell.ring();
            }
        }
        self.mapping.release()?;
        Ok(is_abandoned)
    }
}
