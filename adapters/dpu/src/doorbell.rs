//! The pipes beside a window, by which host and device wake each other.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use towline_window::doorbell::{HOST_PIPE, PIPE};

/// The pipe that wakes the device of a window. The device has made it.
#[derive(Debug)]
pub struct Doorbell(File);

impl Doorbell {
    /// Opens the doorbell of the window in a file.
    ///
    /// # Errors
    /// Those of the operating system, and if it is no pipe.
    pub fn open(window: &Path) -> io::Result<Self> {
        open(window, PIPE).map(Self)
    }

    /// Wakes the device.
    pub fn ring(&self) {
        // A full pipe wakes the device, too.
        let _ = (&self.0).write(&[0]);
    }
}

/// The pipe by which the device of a window wakes this process.
#[derive(Debug)]
pub struct HostBell(File);

impl HostBell {
    /// Opens the host's bell of the window in a file.
    ///
    /// # Errors
    /// As for [`Doorbell::open`].
    pub fn open(window: &Path) -> io::Result<Self> {
        open(window, HOST_PIPE).map(Self)
    }

    /// Takes bells that were rung.
    pub fn clear(&self) {
        // Bells that are left end the next sleep early.
        let _ = (&self.0).read(&mut [0; 64]);
    }
}

impl AsFd for HostBell {
    /// It is readable after the device has rung.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Opens a pipe for reading and writing, so that a device that has ended never ends the pipe.
fn open(window: &Path, suffix: &str) -> io::Result<File> {
    let mut path = window.as_os_str().to_owned();
    path.push(suffix);
    let flags = OFlags::NONBLOCK.bits() as i32;
    let pipe = OpenOptions::new().read(true).write(true).custom_flags(flags).open(PathBuf::from(path))?;
    if pipe.metadata()?.file_type().is_fifo() { Ok(pipe) } else { Err(io::Error::other("it is no pipe")) }
}
