//! How the device sleeps, and how it and its host wake each other: by two named pipes beside the window's file.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, flock, mknodat};
use rustix::io::Errno;
use towline_core::time::Duration;
use towline_window::doorbell::{Doorbell, HOST_PIPE, PIPE};

/// Microseconds for which a device looks for work before it sleeps.
const AWAKE: (&str, u64) = ("TOWLINE_FIRMWARE_AWAKE_US", 20);
/// Milliseconds of the longest sleep, after which the host sees a heartbeat.
const LONGEST: (&str, u64) = ("TOWLINE_FIRMWARE_SLEEP_MS", 100);

/// What a sleeping device waits for, and how it wakes its host.
struct Bells {
    /// `None` if the pipes cannot be made: then the device never sleeps.
    pipes: Option<(File, File)>,
    sockets: Vec<OwnedFd>,
    awake: Duration,
    longest: Duration,
}

static BELLS: OnceLock<Bells> = OnceLock::new();

/// Makes the pipes of a window, for a device with these sockets.
///
/// # Errors
/// A text that says what is wrong with a variable of the environment, or that another process serves the window.
pub fn make(window: &str, sockets: Vec<OwnedFd>) -> Result<(), String> {
    let awake = Duration::from_nanos(variable(AWAKE)?.saturating_mul(1000));
    let longest = Duration::from_nanos(variable(LONGEST)?.saturating_mul(1_000_000));
    let pipes = pipe(window, PIPE).and_then(|pipe_of_device| Ok((pipe_of_device, pipe(window, HOST_PIPE)?)));
    if let Ok((doorbell, _)) = &pipes
        && flock(doorbell, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
    {
        return Err(format!("another firmware serves the window {window}: end it first, or use another window"));
    }
    // Beside memory of a card there may be no place for pipes.
    let _ = BELLS.set(Bells { pipes: pipes.ok(), sockets, awake, longest });
    Ok(())
}

/// The value of a variable of the environment, or what it is without one.
fn variable((name, otherwise): (&str, u64)) -> Result<u64, String> {
    match std::env::var(name) {
        Ok(text) => text.parse().map_err(|why| format!("{name} is {text}, which is not a number: {why}")),
        Err(_) => Ok(otherwise),
    }
}

/// Opens a pipe, and makes it if there is none. One that is there may be open at the host. This side reads and writes, so that the end
/// of the host never ends the pipe.
fn pipe(window: &str, suffix: &str) -> std::io::Result<File> {
    let path = format!("{window}{suffix}");
    let made = match mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(why) => return Err(why.into()),
    };
    let pipe = OpenOptions::new().read(true).write(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&path)?;
    if made {
        // Whoever may use the window may use its pipes, whatever the umask leaves to new files.
        pipe.set_permissions(Permissions::from_mode(std::fs::metadata(window)?.mode() & 0o666))?;
    }
    if pipe.metadata()?.file_type().is_fifo() { Ok(pipe) } else { Err(std::io::Error::other("it is no pipe")) }
}

/// The kind of doorbell.
pub fn kind() -> Doorbell {
    if BELLS.get().is_some_and(|bells| bells.pipes.is_some()) { Doorbell::Pipes } else { Doorbell::None }
}

/// For how long a device looks for work before it sleeps.
pub fn awake() -> Duration {
    BELLS.get().map_or(Duration::from_nanos(0), |bells| bells.awake)
}

/// Sleeps until the host rings, a datagram arrives, or a time has passed.
pub fn sleep(most: Option<Duration>) {
    let Some(bells) = BELLS.get() else { return };
    let Some((doorbell, _)) = &bells.pipes else { return };
    let nanos = most.unwrap_or(bells.longest).min(bells.longest).as_nanos();
    let timeout = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 };
    let watched = [doorbell.as_fd()].into_iter().chain(bells.sockets.iter().map(OwnedFd::as_fd));
    let mut watched: Vec<_> = watched.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    // A signal ends the sleep early.
    let _ = poll(&mut watched, Some(&timeout));
    if watched.first().is_some_and(|doorbell| !doorbell.revents().is_empty()) {
        // Each bell is a byte. Bells that are left end the next sleep early.
        let _ = (&*doorbell).read(&mut [0; 64]);
    }
}

/// Wakes the host.
pub fn ring() {
    if let Some((_, host)) = BELLS.get().and_then(|bells| bells.pipes.as_ref()) {
        // A full pipe wakes the host, too.
        let _ = (&*host).write(&[0]);
    }
}
